"""Ads that a phone chooses: a request with a generalised context, the choice by the exact one, and the private log."""
