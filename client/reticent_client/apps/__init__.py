"""The phone at work: it decides every step on time, and serves what is released to the apps on it."""
