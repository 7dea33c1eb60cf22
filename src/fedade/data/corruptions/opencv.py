"""The one place that names OpenCV, which belongs to the extra `vision`."""

from typing import Any

from fedade.core.optional import OptionalModule

cv2: Any = OptionalModule("cv2", "vision")

__all__ = ["cv2"]
