// Runs cells of JavaScript one after the other and keeps what they leave behind. Descriptor 8 brings a line of JSON per
// cell, descriptor 9 takes lines of JSON about them. What a cell declares at its top level becomes a global, so that
// another cell can use and declare it again.
const fs = require('fs');
const net = require('net');
const path = require('path');
const util = require('util');
const vm = require('vm');
const { createRequire } = require('module');
const { pathToFileURL } = require('url');
const acorn = (() => {
  try {
    return require('internal/deps/acorn/acorn/dist/acorn');
  } catch {
    return null; // a cell is then run as it is
  }
})();

const MAX_RESULTS = 100;
const MAX_BYTES = 4 << 20; // of all results of a cell
const MAX_TEXT = 256 << 10;
const MAX_TRACE = 64 << 10;
const slot = "globalThis[Symbol.for('sandyard')]"; // what a cell's code finds of ours
const rich = Symbol.for('Jupyter.display');

let cell = null; // the one that runs
let count = 0;
const seen = new Set();

class ProcessExit extends Error {
  constructor(code) {
    super(String(code));
    this.name = 'ProcessExit';
    this.code = code;
  }
}

function say(id, type, more) {
  let rest = Buffer.from(JSON.stringify({ id, type, ...more }) + '\n');
  while (rest.length > 0) {
    rest = rest.subarray(fs.writeSync(9, rest));
  }
}

function clip(text, limit) {
  return text.length <= limit ? text : text.slice(0, limit / 2) + '\n…\n' + text.slice(-limit / 2);
}

// children returns the nodes right below a node.
function* children(node) {
  for (const value of Object.values(node)) {
    for (const child of Array.isArray(value) ? value : [value]) {
      if (child && typeof child.type === 'string') yield child;
    }
  }
}

// awaits says whether a node waits for something outside of the functions in it.
function awaits(node) {
  if (/Function/.test(node.type) || node.type === 'PropertyDefinition') return false;
  if (node.type === 'AwaitExpression' || (node.type === 'ForOfStatement' && node.await) || node.type === 'ImportDeclaration') return true;
  for (const child of children(node)) {
    if (awaits(child)) return true;
  }
  return false;
}

// names collects the variables that a pattern declares.
function names(pattern, found) {
  switch (pattern.type) {
    case 'Identifier': found.push(pattern.name); break;
    case 'ObjectPattern': pattern.properties.forEach((p) => names(p.value || p.argument, found)); break;
    case 'ArrayPattern': pattern.elements.forEach((e) => e && names(e, found)); break;
    case 'AssignmentPattern': names(pattern.left, found); break;
    case 'RestElement': names(pattern.argument, found); break;
  }
}

// assigned is a declaration as assignments.
function assigned(code, declaration, found) {
  const parts = declaration.declarations.map((d) => {
    names(d.id, found);
    if (!d.init && declaration.kind === 'var') return 'void 0';
    return `(${code.slice(d.id.start, d.id.end)} = ${d.init ? code.slice(d.init.start, d.init.end) : 'undefined'})`;
  });
  return `void (${parts.join(', ')});`;
}

// imported is a static import as assignments.
function imported(code, node, found) {
  const from = `await ${slot}.import(${code.slice(node.source.start, node.source.end)})`;
  const parts = [];
  let out = '';
  for (const s of node.specifiers) {
    found.push(s.local.name);
    if (s.type === 'ImportNamespaceSpecifier') {
      out += `void (${s.local.name} = ${from});`;
      continue;
    }
    const name = s.type === 'ImportDefaultSpecifier' ? 'default' : s.imported.name ?? s.imported.value;
    parts.push(`${JSON.stringify(name)}: ${s.local.name}`);
  }
  if (parts.length > 0) out += `void ({${parts.join(', ')}} = ${from});`;
  return out || `${from};`;
}

function parse(code) {
  return acorn.parse(code, {
    ecmaVersion: 'latest', sourceType: 'script', allowAwaitOutsideFunction: true, allowImportExportEverywhere: true, allowHashBang: true,
  });
}

// imports finds every import() below a node.
function* imports(node) {
  if (node.type === 'ImportExpression') yield node.start;
  for (const child of children(node)) yield* imports(child);
}

// rewritten is a cell's code, ready to run: { code, async }. The value of its last expression goes to the slot.
function rewritten(code) {
  const starts = [...imports(parse(code))].sort((a, b) => b - a);
  for (const at of starts) code = `${code.slice(0, at)}${slot}.import${code.slice(at + 'import'.length)}`;
  const tree = parse(code);
  const async = tree.body.some(awaits);
  const found = [];
  const head = [];
  let out = '';
  let at = 0;
  const last = tree.body[tree.body.length - 1];
  for (const node of tree.body) {
    let text = null;
    if (node.type === 'VariableDeclaration') text = assigned(code, node, found);
    else if (node.type === 'ImportDeclaration') text = imported(code, node, found);
    else if (node.type === 'ClassDeclaration') {
      found.push(node.id.name);
      text = `void (${node.id.name} = ${code.slice(node.start, node.end)});`;
    } else if (node.type === 'FunctionDeclaration' && async) {
      head.push(`globalThis[${JSON.stringify(node.id.name)}] = ${node.id.name};`);
    } else if (node === last && node.type === 'ExpressionStatement') {
      text = `${slot}.value = (${code.slice(node.expression.start, node.expression.end)}\n);`;
    }
    if (text !== null) {
      out += code.slice(at, node.start) + text;
      at = node.end;
    }
  }
  out += code.slice(at);
  const declared = found.length > 0 ? `var ${[...new Set(found)].join(', ')};` : '';
  if (async) out = `(async () => { ${head.join(' ')} ${out}\n})()`;
  return { code: `${declared} ${out}`, async };
}

async function execute(source, name) {
  const holder = { import: dynamic };
  Object.defineProperty(globalThis, Symbol.for('sandyard'), { value: holder, configurable: true, enumerable: false });
  const prepared = acorn ? rewritten(source) : { code: source, async: false };
  const script = new vm.Script(prepared.code, { filename: name });
  const value = script.runInThisContext({ breakOnSigint: true, displayErrors: false });
  if (prepared.async) await interruptible(value);
  return acorn ? holder.value : value;
}

// dynamic is import() of a cell, which finds modules from the context's directory.
async function dynamic(specifier) {
  if (/^\.{0,2}\//.test(specifier)) return load(pathToFileURL(path.resolve(specifier)).href);
  try {
    const found = globalThis.require.resolve(specifier);
    if (path.isAbsolute(found)) return load(pathToFileURL(found).href);
  } catch {
    // load says better what is wrong
  }
  return load(specifier);
}

function interruption() {
  return Object.assign(new Error('interrupted'), { code: 'ERR_SCRIPT_EXECUTION_INTERRUPTED' });
}

// interruptible waits for a promise, or for what ends the cell before.
function interruptible(promise) {
  return new Promise((resolve, reject) => {
    cell.abort = reject;
    if (cell.interrupted) reject(interruption());
    promise.then(resolve, reject);
  });
}

function bundle(value) {
  const text = typeof value === 'string' ? util.inspect(value) : util.inspect(value, { depth: 4, maxArrayLength: 1000, maxStringLength: 100000 });
  const data = { 'text/plain': clip(text, MAX_TEXT) };
  if (value !== null && typeof value === 'object') {
    try {
      if (typeof value[rich] === 'function') return { ...data, ...value[rich]() };
      const plain = Object.getPrototypeOf(value);
      if (Array.isArray(value) || plain === Object.prototype || plain === null) {
        const json = JSON.stringify(value);
        if (json !== undefined && json.length <= MAX_TEXT) data['application/json'] = JSON.parse(json);
      }
    } catch {
      // it has no such representation
    }
  }
  return data;
}

function show(value, main) {
  if (!cell) return;
  let data = bundle(value);
  let size = JSON.stringify(data).length;
  if (size > cell.left) {
    say(cell.id, 'cut');
    data = { 'text/plain': data['text/plain'].slice(0, 1000) };
    size = JSON.stringify(data).length;
  }
  if (cell.results >= MAX_RESULTS || size > cell.left) {
    say(cell.id, 'cut');
    return;
  }
  cell.results++;
  cell.left -= size;
  say(cell.id, 'result', { data, main });
}

function explain(e) {
  if (e instanceof ProcessExit) {
    return e.code ? { name: 'ProcessExit', value: String(e.code), traceback: '' } : null;
  }
  if (e && e.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED') {
    return { name: 'Interrupted', value: 'the cell was interrupted', traceback: '' };
  }
  const error = e !== null && typeof e === 'object' && 'message' in e;
  const name = error ? String(e.name || 'Error') : 'Error';
  const value = error ? String(e.message) : util.inspect(e);
  return { name, value: clip(value, MAX_TRACE), traceback: clip(trace(error ? e.stack : ''), MAX_TRACE) };
}

// trace is a stack down to the cell.
function trace(stack) {
  const lines = String(stack || '').split('\n');
  let last = lines.length - 1;
  while (last > 0 && !/<cell \d+>/.test(lines[last])) last--;
  return (last > 0 ? lines.slice(0, last + 1) : lines.filter((l) => !/^\s+at /.test(l))).join('\n');
}

async function run(next) {
  if (seen.has(next.id)) return;
  seen.add(next.id);
  cell = { id: next.id, results: 0, left: MAX_BYTES, abort: null };
  count++;
  say(next.id, 'begin', { count });
  const before = Object.keys(next.env || {}).map((name) => [name, process.env[name]]);
  let error = null;
  if (next.merge) process.stderr.write = (...args) => process.stdout.write(...args);
  try {
    Object.assign(process.env, next.env);
    if (next.cwd) process.chdir(next.cwd);
    globalThis.require = createRequire(path.join(process.cwd(), 'cell.js'));
    const value = await execute(next.code, `<cell ${count}>`);
    if (value !== undefined) {
      globalThis._ = value;
      show(value, true);
    }
  } catch (e) {
    error = explain(e);
  }
  for (const [name, value] of before) {
    if (value === undefined) delete process.env[name];
    else process.env[name] = value;
  }
  if (next.merge) delete process.stderr.write;
  cell = null;
  say(next.id, 'done', { count, error });
}

function stray(e) {
  if (cell && cell.abort) cell.abort(e);
  else if (!(e instanceof ProcessExit)) process.stderr.write(`Uncaught ${util.inspect(e)}\n`);
}

process.execArgv = [];
process.exit = (code) => {
  throw new ProcessExit(code ?? process.exitCode ?? 0);
};
process.on('uncaughtException', stray);
process.on('unhandledRejection', stray);
process.on('SIGINT', () => {
  if (cell) cell.interrupted = true;
  if (cell && cell.abort) cell.abort(interruption());
});
globalThis.display = (...values) => values.forEach((v) => show(v, false));
globalThis.module = { exports: {} };
globalThis.exports = globalThis.module.exports;

fs.writeSync(9, '{"type":"ready"}\n');
let line = Promise.resolve();
let rest = [];
new net.Socket({ fd: 8, readable: true, writable: false }).on('data', (data) => {
  for (let end; (end = data.indexOf(10)) >= 0; data = data.subarray(end + 1)) {
    const text = Buffer.concat([...rest, data.subarray(0, end)]).toString();
    rest = [];
    line = line.then(() => run(JSON.parse(text)));
  }
  if (data.length > 0) rest.push(data);
});
