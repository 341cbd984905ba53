"""transformers' Trainer: a callback finds DDP and the optimizer when training begins.

    torchrun --nproc-per-node 2 transformers_trainer.py
    bfrun -np 2 python transformers_trainer.py
"""

import tempfile

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

import bluefog_cpp.torch as bf


class Gossip(TrainerCallback):
    def __init__(self, trainer):
        self.trainer = trainer

    def on_train_begin(self, args, state, control, optimizer, **_):
        optimizer.optimizer = bf.decentralize(self.trainer.model_wrapped, optimizer.optimizer)


def main():
    torch.manual_seed(0)
    # A model of random values: nothing is fetched.
    model = GPT2LMHeadModel(GPT2Config(vocab_size=16, n_positions=8, n_embd=8, n_layer=1, n_head=2,
                                       bos_token_id=0, eos_token_id=0))
    tokens = torch.randint(16, (64, 8)).tolist()
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, use_cpu=True, ddp_backend="gloo", ddp_find_unused_parameters=False,
            max_steps=8, per_device_train_batch_size=2, gradient_accumulation_steps=2, optim="sgd",
            learning_rate=0.1, save_strategy="no", report_to="none", disable_tqdm=True)
        bf.init()
        trainer = Trainer(model, arguments,
                          train_dataset=[{"input_ids": line, "labels": line} for line in tokens])
        trainer.add_callback(Gossip(trainer))
        trainer.train()


if __name__ == "__main__":
    main()
