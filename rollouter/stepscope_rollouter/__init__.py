"""
The reference rollouter: replicas that generate while the trainer trains, their engines, and the sample queue.
"""
