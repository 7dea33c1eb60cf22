"""Image datasets as the Hugging Face hub stores them: parquet shards of encoded images and labels."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from fedade.core.errors import FedadeError
from fedade.data.dataset import checked_labels
from fedade.data.download import damaged
from fedade.data.readers.images import Encoded, ImageReading, Undecoded, decode_into, image_shape

ROWS_PER_READ = 1024


@dataclass(frozen=True)
class ParquetShards:
    """Which columns hold images and labels, how many classes there are, what the test part is called."""

    image: str
    label: str
    num_classes: int
    test: str = "test"

    def recognises(self, folder: Path) -> bool:
        shards = _shards(folder, "train")
        if not shards:
            return False
        try:
            return {self.image, self.label} <= set(pq.read_schema(shards[0]).names)
        except (pa.ArrowException, OSError):
            return True

    def files(self, folder: Path) -> list[Path]:
        return _shards(folder, "train") + _shards(folder, self.test)

    def read(self, folder: Path) -> ImageReading:
        train, test = self._part(folder, "train"), self._part(folder, self.test)
        return ImageReading(folder, self._class_names(_shards(folder, "train")[0]), train, test)

    def _part(self, folder: Path, part: str) -> Undecoded:
        shards = _shards(folder, part)
        if not shards:
            raise FedadeError(f"{folder}: no {part}-*.parquet beside the other shards; add the {part} part")
        labels = np.concatenate([self._labels(shard) for shard in shards])
        shape = image_shape(next(self._images(shards)))
        return Undecoded(labels, shape, lambda out: decode_into(out, self._images(shards)))

    def _labels(self, shard: Path) -> NDArray[np.int64]:
        try:
            table = pq.read_table(shard, columns=[self.label])
        except (pa.ArrowException, OSError) as error:
            raise damaged(shard, str(error)) from error
        if self.label not in table.column_names:
            raise FedadeError(f"{shard} has no column {self.label!r}; expected {self.image!r} and {self.label!r}")
        return checked_labels(table[self.label].to_numpy(), self.num_classes, shard)

    def _images(self, shards: list[Path]) -> Iterator[Encoded]:
        for shard in shards:
            row = 0
            try:
                for batch in pq.ParquetFile(shard).iter_batches(ROWS_PER_READ, columns=[self.image]):
                    for image in batch.column(0).to_pylist():
                        content = image.get("bytes") if isinstance(image, dict) else image
                        if not isinstance(content, bytes):
                            raise FedadeError(f"{shard} row {row} holds no image bytes; expected an encoded image")
                        yield Encoded(f"{shard} row {row}", content)
                        row += 1
            except (pa.ArrowException, OSError, IndexError) as error:
                raise damaged(shard, str(error)) from error

    def _class_names(self, shard: Path) -> tuple[str, ...]:
        metadata = pq.read_schema(shard).metadata or {}
        try:
            features = json.loads(metadata[b"huggingface"])["info"]["features"]
            names = tuple(str(name) for name in features[self.label]["names"])
        except (KeyError, TypeError, ValueError):
            return tuple(str(label) for label in range(self.num_classes))
        if len(names) != self.num_classes:
            raise FedadeError(f"{shard} has {len(names)} classes, expected {self.num_classes}; is it another dataset?")
        return names


def _shards(folder: Path, part: str) -> list[Path]:
    """The shards of one part, in the order of their rows."""
    return sorted(folder.glob(f"{part}-*.parquet"))
