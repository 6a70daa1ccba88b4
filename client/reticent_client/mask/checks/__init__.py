"""The privacy checks, one file each; `registry` lists them."""
