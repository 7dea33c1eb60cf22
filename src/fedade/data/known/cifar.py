"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009), and their corrupted test images (Hendrycks and Dietterich, 2019)."""

from fedade.data.download import Archive, published_files
from fedade.data.locate import DiskLayout
from fedade.data.readers.cifar import CifarBatches
from fedade.data.readers.parquet import ParquetShards
from fedade.data.specs import CorruptedSpec, ImageSpec

_FILES10 = """
17552826 sha256:aa1053d9643e0fea952447ec183b29b176f3377afffa5438310d9e163924a3b7 train-00000-of-00005.parquet
17598623 sha256:ebf32b7ddd2944603146bf7001d257f26e092d57eda1ba5bf7975ea67a55befc train-00001-of-00005.parquet
17600962 sha256:047ce0364268bcc05b30b92c2db90a0f8728844b931aad48e8eef5306406d6fd train-00002-of-00005.parquet
17582844 sha256:6e5013d545fa9c78ba9739cabaa4bed14473258f88e096323c7692f97b43aa08 train-00003-of-00005.parquet
17549046 sha256:e9bf831af00296688ccba55034e252a4865e9bb78cb3723503ea34be7eb26f00 train-00004-of-00005.parquet
17586658 sha256:550ed9b42a3de1ddbad0f6ae04e4e111e582764de5d2fa777d8906dea1326a67 test-00000-of-00001.parquet
31035704 md5:c99cafc152244af753f735de768cd75f data_batch_1
31035320 md5:d4bba439e000b95fd0a9bffe97cbabec data_batch_2
31035999 md5:54ebc095f3ab1f0389bbae665268c751 data_batch_3
31035696 md5:634d18415352ddfa80567beed471001a data_batch_4
31035623 md5:482c414d41f54cd18b22e5b47cb7c3cb data_batch_5
31035526 md5:40351d587109b95175f43aff81a1287e test_batch
158 md5:5ff9c542aee3614f3951f8cda6e48888 batches.meta
"""
_FILES100 = """
17630301 sha256:f1829aebf0555b7b80fdef79e0037d20ddf7672e640573a41f663cfb7781cbf4 train-00000-of-00005.parquet
18163630 sha256:6574ee4f76d5174324079b3ac9c45276a6b6688acb249c7e78440b3a45cd2fd1 train-00001-of-00005.parquet
18069042 sha256:cedf0594f0012c10170ab6fcf99183a328f7213c81fd043eac803140a1d4068a train-00002-of-00005.parquet
17680870 sha256:3604ebd0fddaefc1ce488c3b73bdebaf2cb498642303788b188fa3d54e24e352 test-00000-of-00001.parquet
155249918 md5:16019d7e3df5f24257cddd939b257f8d train
31049918 md5:f0ef6b0ae62326f3e7ffdfab6717acfc test
1461 md5:7973b15100ade9c7d40fb424638fde48 meta
"""


def _cifar(
    parquet: ParquetShards, folders: tuple[str, ...], pickles: CifarBatches, unpacked: str, digest: str, published: str
) -> ImageSpec:
    """As the Hugging Face hub stores it, in the first of the folders, and as its authors do."""
    classes = parquet.num_classes
    name, files = f"cifar{classes}", published_files(published)
    archive = Archive(f"https://www.cs.toronto.edu/~kriz/cifar-{classes}-python.tar.gz", f"sha256:{digest}", unpacked)
    layouts = (
        DiskLayout(folders, f"{folders[0]}/train-*.parquet and test-*.parquet", parquet),
        DiskLayout((unpacked, f"{name}/{unpacked}", "."), f"{unpacked}/", pickles),
    )
    return ImageSpec(name, classes, 50_000, 10_000, layouts, archive, files)


_BATCHES10 = tuple(f"data_batch_{number}" for number in range(1, 6))
CIFAR10 = _cifar(
    ParquetShards("img", "label", 10),
    ("cifar10/plain_text", "plain_text", "cifar10", "datasets--uoft-cs--cifar10/snapshots/*/plain_text", "."),
    CifarBatches(_BATCHES10, "test_batch", "labels", "batches.meta", "label_names", 10),
    "cifar-10-batches-py",
    "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
    _FILES10,
)
CIFAR100 = _cifar(
    ParquetShards("img", "fine_label", 100),
    ("cifar100/cifar100", "cifar100", "datasets--uoft-cs--cifar100/snapshots/*/cifar100", "."),
    CifarBatches(("train",), "test", "fine_labels", "meta", "fine_label_names", 100),
    "cifar-100-python",
    "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
    _FILES100,
)


def _corrupted(clean: ImageSpec, record: int, digest: str) -> CorruptedSpec:
    folder = f"CIFAR-{clean.num_classes}-C"
    archive = Archive(f"https://zenodo.org/records/{record}/files/{folder}.tar", f"md5:{digest}", folder)
    return CorruptedSpec(f"{clean.name}-c", clean, (folder, f"{clean.name}-c"), archive)


CIFAR10_C = _corrupted(CIFAR10, 2535967, "56bf5dcef84df0e2308c6dcbcbbd8499")
CIFAR100_C = _corrupted(CIFAR100, 3555552, "11f0ed0f1191edbf9fa23466ae6021d3")
