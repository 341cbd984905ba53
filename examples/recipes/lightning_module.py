"""Lightning: DDP is around the module when `configure_optimizers` is called.

    torchrun --nproc-per-node 2 lightning_module.py
    bfrun -np 2 python lightning_module.py
"""

import os

import pytorch_lightning as lightning
import torch
from pytorch_lightning.strategies import DDPStrategy
from torch.utils.data import DataLoader, TensorDataset

import bluefog_cpp.torch as bf


class Regression(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(4, 1)

    def training_step(self, batch, _):
        inputs, targets = batch
        return torch.nn.functional.mse_loss(self.net(inputs), targets)

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.05)
        return bf.decentralize(self.trainer.strategy.model, optimizer)


def main():
    bf.init()  # before Trainer, which initialises MPI where mpi4py is installed
    torch.manual_seed(0)
    inputs = torch.randn(64, 4)
    loader = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=4)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=int(os.environ["LOCAL_WORLD_SIZE"]), max_epochs=1,
        strategy=DDPStrategy(broadcast_buffers=False, process_group_backend="gloo"),
        accumulate_grad_batches=2, gradient_clip_val=1.0, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(Regression(), loader)


if __name__ == "__main__":
    main()
