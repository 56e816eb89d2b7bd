"""Pixels as PNG files in text, which is how result files hold pictures."""

import base64
import io

import torch
from torch import Tensor


def as_png(colours: Tensor) -> str:
    """A square picture [size², 3] in [0, 1] as a base64 PNG."""
    from PIL import Image

    size = round(len(colours) ** 0.5)
    pixels = (colours.clamp(0, 1) * 255).round().byte().view(size, size, 3).cpu()
    file = io.BytesIO()
    Image.fromarray(pixels.numpy()).save(file, "PNG", optimize=True)
    return base64.b64encode(file.getvalue()).decode()


def with_known_only(places: Tensor, colours: Tensor, size: int, background: float = 0.0) -> Tensor:
    """Known pixels (places [K, 2] in [0, 1], colours [K, 3]) on an empty picture → [size², 3]."""
    index = (places * (size - 1)).round().long()
    picture = torch.full((size * size, 3), background, device=colours.device)
    picture[index[:, 0] * size + index[:, 1]] = colours
    return picture
