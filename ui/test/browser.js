// A real browser, and pages that are held to do nothing that they must not.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { chromium } from 'playwright-core';

export const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
/** Where pictures go, if anywhere. */
export const SHOTS = process.env.UI_SCREENSHOTS;
export const BACK = { light: 'rgb(245, 246, 247)', dark: 'rgb(16, 22, 28)' };
const FLAGS = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'];

export const launch = () => chromium.launch({ executablePath: process.env.CHROMIUM, args: FLAGS });

/** A page at `url`, which asks nothing that does not begin with `origin`; what it does that it must not is kept in `faults`, and `end` says so. */
export async function openPage(browser, url, { width = 1280, theme = 'light', allow, origin = url } = {}) {
  const context = await browser.newContext({ viewport: { width, height: width > 600 ? 860 : 844 }, colorScheme: theme });
  const page = await context.newPage();
  // A machine under load is slow, and no test is about that.
  page.setDefaultTimeout(90_000);
  const faults = [];
  page.on('request', (request) => { if (!request.url().startsWith(origin) && !request.url().startsWith('data:')) faults.push(`asks ${request.url()}`); });
  page.on('console', (message) => { if (['error', 'warning'].includes(message.type()) && !allow?.test(message.text())) faults.push(`console: ${message.text()}`); });
  page.on('pageerror', (error) => faults.push(`fails: ${error.stack}`));
  page.on('dialog', (dialog) => { faults.push('opens a dialog'); dialog.dismiss(); });
  await page.goto(url);
  return { page, faults, end: async () => { await context.close(); assert.deepEqual(faults, []); } };
}

/** A page that is filled: whole in its width, nothing that axe finds, and a picture of it. */
export async function judge(page, name, width, theme) {
  const sideways = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  assert.ok(sideways <= 0, `${name} scrolls sideways by ${sideways} pixels`);
  if (SHOTS) await page.screenshot({ path: `${SHOTS}/${name}-${width}-${theme}.png`, fullPage: true });
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ['violations'] }));
  assert.deepEqual(violations.map(({ id, nodes }) => `${id}: ${nodes[0].html.slice(0, 160)} ${nodes[0].failureSummary}`), [], name);
}
