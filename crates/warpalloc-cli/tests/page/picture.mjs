// Takes a picture of a page: node picture.mjs PAGE.html[#cap=80] OUT.png [light|dark] [WIDTH] [HEIGHT]

import { pathToFileURL } from 'node:url';
import { open, start, stop } from './browser.mjs';

const [, , named, out, colorScheme = 'light', width = '1280', height = '1160'] = process.argv;
const [path, hash = ''] = named.split('#');
await start();
const viewport = { width: Number(width), height: Number(height) };
const page = await open(`${pathToFileURL(path)}#${hash}`, { colorScheme, viewport });
await page.screenshot({ path: out });
await stop();
