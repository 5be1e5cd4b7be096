"""The paper's tables and figures, made again with our methods: ours beside published."""
