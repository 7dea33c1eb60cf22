import sys
from pathlib import Path

EXTENSIONS = Path(__file__).parents[2] / "docs" / "_ext"
sys.path.insert(0, str(EXTENSIONS))
