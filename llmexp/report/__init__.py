"""What a run did and what came of it: figures, a self-contained HTML page, a summary for the terminal."""
