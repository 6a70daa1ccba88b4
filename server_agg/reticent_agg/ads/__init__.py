"""The ad service: a catalogue, an index by generalised context, and the service that sends ads to phones."""
