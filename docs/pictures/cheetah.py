"""python docs/pictures/cheetah.py: cheetah.gif, the frames of results/fig6a/cheetah.png before and after the update."""

from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

WIDTH, HEIGHT, CAPTION, COLUMNS, FRAMES = 240, 180, 26, 4, 8  # of a frame; what `cavia watch` writes
TITLES = ("before: it stands", "after one update of 50 numbers: it runs")


def main() -> None:
    here = Path(__file__)
    strip = Image.open(here.parents[2] / "results" / "fig6a" / "cheetah.png").convert("RGB")
    stages = len(TITLES)
    lines = FRAMES // COLUMNS
    if strip.size != (COLUMNS * WIDTH, stages * (CAPTION + lines * HEIGHT)):
        raise SystemExit(f"cheetah.png has another layout than expected: {strip.size}")
    frames = []
    for number in range(FRAMES):
        frame = Image.new("RGB", (stages * WIDTH + 8, CAPTION + HEIGHT), "white")
        draw = ImageDraw.Draw(frame)
        for stage, title in enumerate(TITLES):
            left, top = number % COLUMNS * WIDTH, CAPTION + number // COLUMNS * HEIGHT + stage * strip.height // stages
            frame.paste(strip.crop((left, top, left + WIDTH, top + HEIGHT)), (stage * (WIDTH + 8), CAPTION))
            draw.text((stage * (WIDTH + 8) + 2, 6), title, fill="#1f2430", font=ImageFont.load_default(12))
        frames.append(frame)
    path = here.with_suffix(".gif")
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=220, loop=0, optimize=True)
    print(path, path.stat().st_size // 1024, "KB")


if __name__ == "__main__":
    main()
