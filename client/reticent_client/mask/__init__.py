"""Release or suppress: chains, policies, the checks that compute them, the mask that runs one, and its adversary."""
