import sys
from reticent_client import connect

for step in connect(*sys.argv[1:]).stream():
    print(step.time, "silent" if step.context == "work" else "loud", flush=True)
