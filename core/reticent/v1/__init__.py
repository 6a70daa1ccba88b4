"""What the roles say to each other, version 1: generated from protos/ by `make stubs`.

Nothing is imported here, so that only those who speak to others need grpc.
"""
