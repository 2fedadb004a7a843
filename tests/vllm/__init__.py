"""
Tests against a real vLLM on the CPU. In an environment of their own: ``make test-vllm``.
"""
