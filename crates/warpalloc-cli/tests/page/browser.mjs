// A browser, and pages that `warpalloc report` made.

import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';

const root = fileURLToPath(new URL('../../../..', import.meta.url));
const FLAGS = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'];

/** The command under test. */
const command = process.env.WARPALLOC || join(root, 'target/debug/warpalloc');
/** The assembler, where there is one. */
export const ptxas = process.env.WARPALLOC_PTXAS;

function program() {
  if (process.env.CHROMIUM) return process.env.CHROMIUM;
  const names = ['chromium', 'chromium-browser', 'google-chrome'];
  const folders = (process.env.PATH || '').split(delimiter);
  const found = names.flatMap((name) => folders.map((folder) => join(folder, name))).find(existsSync);
  if (!found) throw new Error('a Chromium is needed: CHROMIUM names one');
  return found;
}

const folder = mkdtempSync(join(tmpdir(), 'warpalloc-page-'));
process.on('exit', () => rmSync(folder, { recursive: true, force: true }));

/** Writes a file that a report is made of. */
export function file(name, text) {
  const path = join(folder, name);
  writeFileSync(path, text);
  return path;
}

export const corpus = (name) => join(root, 'corpus/ptx', name);

let made = 0;
/** Makes a page; its address. */
export function report(...args) {
  const path = join(folder, `page-${made += 1}.html`);
  const asks = args.includes('--ptxas') ? [] : ['--no-ptxas'];
  execFileSync(command, ['report', ...args, ...asks, '-o', path], { stdio: ['ignore', 'inherit', 'inherit'] });
  return `file://${path}`;
}

let browser;
export async function start() {
  browser = await chromium.launch({ executablePath: program(), headless: true, args: FLAGS });
}
export async function stop() {
  await browser.close();
}

/** Opens a page in a profile of its own. What it says on the console or asks for is kept. */
export async function open(address, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  page.said = [];
  page.asked = [];
  page.on('console', (message) => page.said.push(message.text()));
  page.on('pageerror', (error) => page.said.push(String(error)));
  page.on('request', (request) => { if (!request.url().startsWith('data:')) page.asked.push(request.url()); });
  await page.goto(address);
  if (options.javaScriptEnabled !== false) await settled(page);
  return page;
}

/** Waits until what was scheduled has been drawn. */
export async function settled(page) {
  await page.evaluate(() => new Promise((done) => {
    setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(done)), 300);
  }));
}

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
/** What an accessibility audit finds, one line for each element. */
export async function audit(page) {
  // The policy of the page forbids eval, which the audit does not need.
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run(document, {
    runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'],
  }));
  return violations.flatMap(({ id, nodes }) => nodes.map((node) => `${id}: ${node.target.join(' ')}: ${node.failureSummary}`));
}
