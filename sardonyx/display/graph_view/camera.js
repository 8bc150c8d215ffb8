// The part of the sheet that the window shows: pan, zoom, and smooth moves to a place.
const [FARTHEST, NEAREST] = [0.02, 3];
const READABLE = 0.85;
const calm = matchMedia("(prefers-reduced-motion: reduce)");

export class Camera {
  constructor(canvas, changed) {
    this.canvas = canvas;
    this.changed = changed;
    this.x = this.y = 0;
    this.scale = 1;
    this.flight = 0;
  }

  get width() { return this.canvas.clientWidth; }
  get height() { return this.canvas.clientHeight; }

  toSheet(x, y) { return { x: this.x + x / this.scale, y: this.y + y / this.scale }; }

  pan(dx, dy) {
    this.flight += 1;
    this.x -= dx / this.scale;
    this.y -= dy / this.scale;
    this.changed();
  }

  zoom(factor, x = this.width / 2, y = this.height / 2) {
    this.flight += 1;
    const at = this.toSheet(x, y);
    this.scale = Math.min(NEAREST, Math.max(FARTHEST, this.scale * factor));
    this.x = at.x - x / this.scale;
    this.y = at.y - y / this.scale;
    this.changed();
  }

  // The whole sheet; at first, if it would be too small to read, the top of it.
  fit(scene, { whole = true, smooth = true } = {}) {
    const all = Math.min(this.width / scene.width, this.height / scene.height, 1.15);
    const scale = whole ? all : Math.max(all, READABLE);
    const x = scene.width / 2 - this.width / 2 / scale;
    const y = scene.height * scale > this.height ? 0 : scene.height / 2 - this.height / 2 / scale;
    this.move({ x, y, scale }, smooth);
  }

  // Brings a box into the middle of what the panel leaves free.
  show(box, covered = 0) {
    const scale = Math.max(this.scale, 0.8);
    const x = box.x + Math.min(box.width / 2, (this.width - covered) / 2 / scale) - (this.width - covered) / 2 / scale;
    const y = box.y + Math.min(box.height / 2, this.height / 3 / scale) - this.height / 2.4 / scale;
    this.move({ x, y, scale }, true);
  }

  move(target, smooth) {
    const flight = (this.flight += 1);
    if (!smooth || calm.matches) {
      Object.assign(this, target);
      this.changed();
      return;
    }
    const start = { x: this.x, y: this.y, scale: this.scale }, begun = performance.now();
    const step = (now) => {
      if (flight !== this.flight) return;
      const t = Math.min(1, Math.max(0, (now - begun) / 220)), eased = 1 - (1 - t) ** 3;
      for (const key of ["x", "y", "scale"]) this[key] = start[key] + (target[key] - start[key]) * eased;
      this.changed();
      if (t < 1) requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  }
}
