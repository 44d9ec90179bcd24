"""The whole stack on one machine, and the demonstration of the main job."""
