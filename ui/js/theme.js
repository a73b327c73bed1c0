// The colours, and what a browser remembers of a choice.

import { h } from './dom.js';

const THEMES = { auto: 'Auto', light: 'Light', dark: 'Dark' };

function theme(choice) {
  const value = choice in THEMES ? choice : 'auto';
  if (value === 'auto') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = value;
  return value;
}

function remembered(name, value) {
  try {
    if (value !== undefined) localStorage.setItem(name, value);
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

/** The switch. */
export function themeChoice() {
  const choose = (event) => remembered('rheostat-theme', theme(event.target.value));
  const now = theme(remembered('rheostat-theme'));
  return h('label', { class: 'theme' }, h('span', { class: 'hidden' }, 'Colours'),
    h('select', { onchange: choose }, Object.entries(THEMES).map(([value, text]) => h('option', { value, selected: value === now }, text))));
}

theme(remembered('rheostat-theme'));
