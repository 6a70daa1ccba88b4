"""The messages and services of the protocol, version 1: generated from protos/ by `make stubs`.

Nothing is imported here, so that only those who speak to others need grpc.
"""
