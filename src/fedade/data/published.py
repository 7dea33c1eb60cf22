"""Checksums of the files in which the benchmark datasets are published, by file name."""

from collections.abc import Mapping

from fedade.data.checksums import Published

PublishedFiles = Mapping[str, Published]

CIFAR10: PublishedFiles = {
    "train-00000-of-00005.parquet": Published(
        17552826, "sha256:aa1053d9643e0fea952447ec183b29b176f3377afffa5438310d9e163924a3b7"
    ),
    "train-00001-of-00005.parquet": Published(
        17598623, "sha256:ebf32b7ddd2944603146bf7001d257f26e092d57eda1ba5bf7975ea67a55befc"
    ),
    "train-00002-of-00005.parquet": Published(
        17600962, "sha256:047ce0364268bcc05b30b92c2db90a0f8728844b931aad48e8eef5306406d6fd"
    ),
    "train-00003-of-00005.parquet": Published(
        17582844, "sha256:6e5013d545fa9c78ba9739cabaa4bed14473258f88e096323c7692f97b43aa08"
    ),
    "train-00004-of-00005.parquet": Published(
        17549046, "sha256:e9bf831af00296688ccba55034e252a4865e9bb78cb3723503ea34be7eb26f00"
    ),
    "test-00000-of-00001.parquet": Published(
        17586658, "sha256:550ed9b42a3de1ddbad0f6ae04e4e111e582764de5d2fa777d8906dea1326a67"
    ),
    "data_batch_1": Published(31035704, "md5:c99cafc152244af753f735de768cd75f"),
    "data_batch_2": Published(31035320, "md5:d4bba439e000b95fd0a9bffe97cbabec"),
    "data_batch_3": Published(31035999, "md5:54ebc095f3ab1f0389bbae665268c751"),
    "data_batch_4": Published(31035696, "md5:634d18415352ddfa80567beed471001a"),
    "data_batch_5": Published(31035623, "md5:482c414d41f54cd18b22e5b47cb7c3cb"),
    "test_batch": Published(31035526, "md5:40351d587109b95175f43aff81a1287e"),
    "batches.meta": Published(158, "md5:5ff9c542aee3614f3951f8cda6e48888"),
}

CIFAR100: PublishedFiles = {
    "train-00000-of-00005.parquet": Published(
        17630301, "sha256:f1829aebf0555b7b80fdef79e0037d20ddf7672e640573a41f663cfb7781cbf4"
    ),
    "train-00001-of-00005.parquet": Published(
        18163630, "sha256:6574ee4f76d5174324079b3ac9c45276a6b6688acb249c7e78440b3a45cd2fd1"
    ),
    "train-00002-of-00005.parquet": Published(
        18069042, "sha256:cedf0594f0012c10170ab6fcf99183a328f7213c81fd043eac803140a1d4068a"
    ),
    "test-00000-of-00001.parquet": Published(
        17680870, "sha256:3604ebd0fddaefc1ce488c3b73bdebaf2cb498642303788b188fa3d54e24e352"
    ),
    "train": Published(155249918, "md5:16019d7e3df5f24257cddd939b257f8d"),
    "test": Published(31049918, "md5:f0ef6b0ae62326f3e7ffdfab6717acfc"),
    "meta": Published(1461, "md5:7973b15100ade9c7d40fb424638fde48"),
}

TINY_IMAGENET: PublishedFiles = {
    "train-00000-of-00005.parquet": Published(
        39548430, "sha256:8d40084be8017c951da2241e1ebbef95eaa0741d8b180b6458cbb5fd4b26552b"
    ),
    "valid-00000-of-00001.parquet": Published(
        19707006, "sha256:b9dc247a9e996fd7d7b0c759c1198c3ded4d1c0743a18c9fdf140e424e679ea2"
    ),
}
