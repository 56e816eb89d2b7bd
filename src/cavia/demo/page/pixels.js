// Pictures as bytes, [size × size × 3], and as canvases.

/** The bytes of a base64 text. */
export function fromText(text) {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

/** Bytes as a base64 text. */
export function toText(bytes) {
  return btoa(String.fromCharCode(...bytes));
}

/** Draws a picture into a canvas of its own size; `known` says which pixels are shown, by default all. */
export function paint(canvas, bytes, size, known = null) {
  if (canvas.width !== size) canvas.width = canvas.height = size;
  const image = new ImageData(size, size);
  for (let pixel = 0; pixel < size * size; pixel++) {
    const visible = !known || known.has(pixel);
    for (let channel = 0; channel < 3; channel++) image.data[4 * pixel + channel] = visible ? bytes[3 * pixel + channel] : 0;
    image.data[4 * pixel + 3] = visible ? 255 : 0;
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}

/** The middle square of a picture from the user's disk, as size × size × 3 bytes. It never leaves this machine. */
export async function fromFile(file, size) {
  let picture = await createImageBitmap(file);
  const side = Math.min(picture.width, picture.height);
  let [left, top, width] = [(picture.width - side) / 2, (picture.height - side) / 2, side];
  while (width > 4 * size) { // halve it first: canvases look at a few pixels only when they shrink one
    const half = new OffscreenCanvas(Math.ceil(width / 2), Math.ceil(width / 2));
    half.getContext("2d").drawImage(picture, left, top, width, width, 0, 0, half.width, half.height);
    [picture, left, top, width] = [half, 0, 0, half.width];
  }
  const small = new OffscreenCanvas(size, size);
  const context = small.getContext("2d", { willReadFrequently: true });
  context.imageSmoothingQuality = "high";
  context.fillStyle = "white";
  context.fillRect(0, 0, size, size);
  context.drawImage(picture, left, top, width, width, 0, 0, size, size);
  return context.getImageData(0, 0, size, size).data.filter((_, index) => index % 4 !== 3);
}
