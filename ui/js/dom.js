// Elements. Text is only ever set as text, so nothing that a cluster holds can become markup.

const SVG = 'http://www.w3.org/2000/svg';

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? '' : String(value));
  }
  for (const child of children.flat(4)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

/** An element of HTML: attributes, `onclick` and the like for listeners; children are elements or text. */
export const h = (tag, properties, ...children) => fill(document.createElement(tag), properties, children);

/** An element of SVG, likewise. */
export const s = (tag, properties, ...children) => fill(document.createElementNS(SVG, tag), properties, children);

/** The control that is pressed and not let go of yet: one that is replaced before is never clicked. */
let pressed = null;

/** What is to be put where something is pressed or selected, once that is over. */
const late = new Map();

/** Whether something in `element` is pressed, or text in it selected, which could not be copied any more. A page that takes another's place waits for neither. */
function isInUse(element) {
  const { isCollapsed, anchorNode } = getSelection();
  return !element.matches('body, main') && [pressed, !isCollapsed && anchorNode].some((one) => one && element.contains(one));
}

function putLate() {
  const all = [...late];
  late.clear();
  all.forEach(([element, children]) => put(element, ...children));
}

const press = (target, controls) => { pressed = target.closest?.(controls) ?? null; };

function letGo() {
  if (!pressed) return;
  pressed = null;
  // The click comes first, and what it puts is newer.
  setTimeout(putLate);
}

addEventListener('pointerdown', (event) => press(event.target, 'button, a, summary, [role=button]'), true);
addEventListener('keydown', (event) => { if (event.key === ' ') press(event.target, 'button, summary'); }, true);
['pointerup', 'pointercancel', 'keyup'].forEach((end) => addEventListener(end, letGo, true));
addEventListener('blur', (event) => { if (event.target === window) letGo(); });
document.addEventListener('selectionchange', () => { if (getSelection().isCollapsed) putLate(); });

/** What must be as it was when `element` holds something else: calling what this returns makes it so. */
function keep(element) {
  const focus = element.contains(document.activeElement) ? document.activeElement.closest('[data-focus]')?.dataset.focus : undefined;
  const scrolled = [...element.querySelectorAll('.scroll')].filter((one) => one.scrollLeft > 0).map((one) => [one.dataset.focus, one.scrollLeft]);
  const find = (name) => element.querySelector(`[data-focus="${CSS.escape(name)}"]`);
  return () => {
    if (focus) find(focus)?.focus({ preventScroll: true });
    scrolled.forEach(([name, left]) => { find(name)?.scrollTo({ left }); });
  };
}

/** Puts `children` in the place of what `element` holds, or once nothing in it is pressed or selected; the focus stays on what has the same `data-focus`, and tables stay scrolled. */
export function put(element, ...children) {
  if (isInUse(element)) {
    late.set(element, children);
    return;
  }
  late.delete(element);
  const restore = keep(element);
  element.replaceChildren(...children.flat(4).filter((child) => child !== null && child !== undefined && child !== false));
  restore();
}

/** A table: heads are texts or `[text, class]`, cells likewise or elements. It scrolls sideways where it must. */
export function table(caption, heads, rows) {
  const cell = (tag) => (content) => {
    const [inner, kind] = Array.isArray(content) ? content : [content, null];
    return h(tag, { class: kind, scope: tag === 'th' ? 'col' : null }, inner);
  };
  return h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': caption, 'data-focus': `table ${caption}` },
    h('table', {}, h('caption', { class: 'hidden' }, caption), h('thead', {}, h('tr', {}, heads.map(cell('th')))),
      h('tbody', {}, rows.map((row) => h('tr', {}, row.map(cell('td')))))));
}

/** A state in a word, with a sign beside the colour. */
export const chip = (kind, text) => h('span', { class: `chip ${kind}` }, h('span', { class: 'sign', 'aria-hidden': 'true' }, { good: '●', mild: '▲', grave: '■', plain: '○' }[kind] ?? '○'), text);

/** A section with a heading; `more` stands beside the heading. */
export const section = (title, more, ...children) => h('section', { class: 'panel' }, h('header', {}, h('h2', {}, title), more), ...children);

/** Runs `draw(width)` when `element` gets another width; says how to stop. */
export function onWidth(element, draw) {
  let last = 0;
  const observer = new ResizeObserver(([entry]) => {
    const width = Math.floor(entry.contentRect.width);
    if (width !== last && width > 0) draw(last = width);
  });
  observer.observe(element);
  return () => observer.disconnect();
}
