"""Policies as models: loading, checks, token ids of prompts, scoring, LoRA, and the tiny policy that is made here."""
