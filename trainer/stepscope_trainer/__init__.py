"""
The reference trainer: GRPO in ranks, which publishes its weights step by step. Start with ``job.run``.
"""
