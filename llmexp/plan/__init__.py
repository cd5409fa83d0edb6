"""What a composition will need: memory, floating-point operations, time and cost, before it starts."""
