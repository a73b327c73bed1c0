// Where data centers are drawn: so that distance is delay, as far as a plane allows.

/** Places for `count` points whose wanted distances are `wanted(i, j)` (undefined: any), within `width` x `height`, the same for the same distances. */
export function places(count, wanted, width, height) {
  if (count === 1) return [[width / 2, height / 2]];
  const points = Array.from({ length: count }, (_, index) => {
    const angle = (2 * Math.PI * index) / count - Math.PI / 2;
    return [Math.cos(angle), Math.sin(angle)];
  });
  const known = [];
  for (let i = 0; i < count; i++) for (let j = i + 1; j < count; j++) if (wanted(i, j) > 0) known.push(wanted(i, j));
  const longest = Math.max(...known, 0);
  if (count > 2 && longest > 0) {
    // No two closer than a fifth of the longest, so that neighbours can be told apart.
    const aim = (i, j) => Math.max(wanted(i, j) ?? longest / 2, longest / 5) / longest * 2;
    for (let round = 0; round < 300; round++) {
      const step = 0.2 * (1 - round / 300);
      for (let i = 0; i < count; i++) {
        for (let j = 0; j < count; j++) {
          if (i === j) continue;
          const [dx, dy] = [points[i][0] - points[j][0], points[i][1] - points[j][1]];
          const distance = Math.hypot(dx, dy) || 1e-6;
          const push = step * (aim(i, j) - distance) / distance / 2;
          points[i][0] += dx * push;
          points[i][1] += dy * push;
        }
      }
    }
  }
  // The longest direction lies flat: screens are wide.
  let [far, a, b] = [0, 0, 1];
  for (let i = 0; i < count; i++) {
    for (let j = i + 1; j < count; j++) {
      const distance = Math.hypot(points[i][0] - points[j][0], points[i][1] - points[j][1]);
      if (distance > far) [far, a, b] = [distance, i, j];
    }
  }
  const turn = -Math.atan2(points[b][1] - points[a][1], points[b][0] - points[a][0]);
  const turned = points.map(([x, y]) => [x * Math.cos(turn) - y * Math.sin(turn), x * Math.sin(turn) + y * Math.cos(turn)]);
  const [xs, ys] = [turned.map(([x]) => x), turned.map(([, y]) => y)];
  const [left, top] = [Math.min(...xs), Math.min(...ys)];
  const [w, hgt] = [Math.max(...xs) - left || 1, Math.max(...ys) - top || 1];
  const scale = Math.min(width / w, height / hgt);
  return turned.map(([x, y]) => [(x - left) * scale + (width - w * scale) / 2, (y - top) * scale + (height - hgt * scale) / 2]);
}
