"""torch.distributed.checkpoint over the vault: a StorageWriter and a StorageReader.

    writer = VaultWriter(run)
    dcp.save(state_dict, storage_writer=writer.at(step))
    ...
    if run.restore_step is not None:
        dcp.load(state_dict, storage_reader=VaultReader(run))

A rank's part is safe in the agent's memory when its ``write_data`` returns; the step counts when
every rank's is. What the checkpoint holds is read from the shards' own descriptions, so there is no
metadata file. Objects that are no tensors stay the bytes that torch.distributed.checkpoint made of
them, and only it reads them again.
"""

from everstep.vault_reader import VaultReader
from everstep.vault_writer import VaultWriter

__all__ = ["VaultReader", "VaultWriter"]
