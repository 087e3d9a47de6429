"""The overlapped loop, a wing that can be left out: the next step is scheduled while the device computes this one.

`scheduler.py` has what a scheduler needs for that, `loop.py` the step loop, `in_flight.py` what is in flight. Nothing
else in `core/` imports it.
"""
