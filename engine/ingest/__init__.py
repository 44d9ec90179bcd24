"""What profilers send, on any of the wires they use, to profiles that a segment can take; refusals with reasons."""
