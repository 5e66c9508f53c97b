// Calls every tool of a Sandyard server with the official TypeScript client of the Model Context Protocol, and some with
// the CLI of the protocol's inspector. The environment says where the server is: MCP_URL, and MCP_KEY for the header.
// Every case prints one line; the exit code says whether all went well.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'

const { MCP_URL, MCP_KEY } = process.env
const headers = { Authorization: `Bearer ${MCP_KEY}` }
const cases = []
const test = (name, run) => cases.push({ name, run })

const client = new Client({ name: 'suite', version: '1' })
const called = new Set()

async function ask(tool, args = {}) {
  called.add(tool)
  const result = await client.callTool({ name: tool, arguments: args })
  const text = result.content.filter((c) => c.type === 'text').map((c) => c.text).join('\n')
  return { ...result, text, fields: result.structuredContent }
}

async function call(tool, args) {
  const result = await ask(tool, args)
  assert.ok(!result.isError, `${tool}: ${result.text}`)
  return result
}

async function refused(tool, args, code) {
  const result = await ask(tool, args)
  assert.ok(result.isError, `${tool} was not refused: ${result.text}`)
  assert.equal(result.fields.error.code, code, result.text)
}

const run = async (command, more) => (await call('shell_exec', { command, ...more })).fields

test('files', async () => {
  await call('file_write', { file: 'src/a.txt', content: 'one\nhere ä\n' })
  assert.equal((await call('file_read', { file: 'src/a.txt', start_line: 1 })).fields.content, 'here ä\n')
  await call('file_edit', { file: 'src/a.txt', old_str: 'one', new_str: 'two' })
  assert.match((await call('file_list', { recursive: true })).text, /src\/a\.txt/)
  assert.equal((await call('file_search', { file: 'src', regex: 'h.re' })).fields.matches[0].line, 2)
  assert.match((await call('file_find', { glob: '*.txt' })).text, /a\.txt/)
  assert.match((await call('glob', { pattern: '**/*.txt' })).text, /a\.txt/)
  assert.match((await call('grep', { pattern: 'TWO', case_insensitive: true })).text, /two/)
  await call('file_upload', { file: 'raw', content_base64: Buffer.from([0, 255, 10]).toString('base64') })
  const down = (await call('file_download', { file: 'raw' })).fields
  assert.deepEqual([...Buffer.from(down.content_base64, 'base64')], [0, 255, 10])
  await call('file_delete', { file: 'raw' })
  await refused('file_read', { file: 'raw' }, 'file_not_found')
})

test('commands', async () => {
  const ended = await run('echo out; echo err >&2; exit 3')
  assert.deepEqual([ended.stdout, ended.stderr, ended.exit_code], ['out\nerr\n', '', 3])
  const begun = await run('sleep 1; echo late', { wait: 0.2 })
  assert.equal(begun.running, true)
  const { exec_id, cursor } = begun
  assert.equal((await call('shell_wait', { exec_id, cursor })).fields.stdout, 'late\n')
  await call('env_set', { name: 'COLOR', value: "it's red" })
  assert.equal((await call('env_get', { name: 'COLOR' })).fields.env.COLOR, "it's red")
  assert.equal((await run('echo $COLOR')).stdout, "it's red\n")
})

// untilItsEnd follows a command: exec_output returns what has come, which need not be all.
async function untilItsEnd({ exec_id, cursor }) {
  let stdout = ''
  for (let running = true; running;) {
    const part = (await call('exec_output', { exec_id, cursor })).fields
    stdout += part.stdout ?? ''
    ;({ cursor, running } = part)
  }
  return stdout
}

test('interactive programs', async () => {
  const { exec_id } = (await call('shell_interactive', { command: 'cat' })).fields
  assert.match((await call('shell_write', { input: 'hello', exec_id })).text, /hello/)
  await call('shell_view', { exec_id })
  await call('shell_kill', { exec_id })
  const other = (await call('exec_start', { command: 'cat; echo done', stdin_open: true })).fields
  await call('exec_stdin', { exec_id: other.exec_id, data: 'abc\n', eof: true })
  assert.equal(await untilItsEnd(other), 'abc\ndone\n')
  const third = (await call('exec_start', { argv: ['sleep', '600'] })).fields
  await call('exec_signal', { exec_id: third.exec_id, signal: 'SIGTERM' })
  await call('exec_output', { exec_id: third.exec_id })
  const fourth = (await call('exec_start', { argv: ['sleep', '601'] })).fields
  let found
  while (!found) {
    const { processes } = (await call('process_list')).fields
    found = processes.find((p) => p.command.includes('sleep 601'))
  }
  await call('process_signal', { pid: found.pid, start: found.start, signal: 'SIGKILL' })
  await untilItsEnd(fourth)
})

test('code', async () => {
  await call('python_exec', { code: 'x = 20' })
  assert.equal((await call('python_execute', { code: 'x + 22' })).fields.results[0].data['text/plain'], '42')
  await refused('javascript_execute', { code: '1' }, 'command_not_found')
  assert.notEqual((await call('pip_install', { packages: 'no-such-package', timeout: 20 })).fields.exit_code, 0)
})

test('git and the network', async () => {
  await run('git init -q --bare there.git && git clone -q there.git here && touch here/a')
  assert.match((await call('git_status', { path: 'here' })).text, /\?\? a/)
  assert.equal((await call('git_commit', { path: 'here', message: 'First' })).fields.exit_code, 0)
  assert.equal((await call('git_push', { path: 'here' })).fields.exit_code, 0)
  assert.notEqual((await call('git_clone', { url: 'http://10.1.2.3/a.git' })).fields.exit_code, 0)
  await run('echo page >index.html; python3 -m http.server 8000', { background: true })
  await run('until curl -sf localhost:8000 >/dev/null; do sleep 0.1; done')
  const page = (await call('http_request', { url: 'http://localhost:8000/index.html' })).fields
  assert.deepEqual([page.status, page.body], [200, 'page\n'])
  assert.match((await call('port_url', { port: 8000 })).fields.url, /^http/)
})

test('the browser, which the template python has not', async () => {
  await refused('browser_open', { url: 'http://localhost:8000/' }, 'no_browser')
  await refused('browser_info', {}, 'no_browser')
  await refused('browser_screenshot', {}, 'no_browser')
  await refused('browser_action', { action_type: 'text' }, 'no_browser')
})

test('other servers', async () => {
  await refused('mcp_list_servers', {}, 'mcp_failed')
  // A server for one tool, which answers whatever it is asked.
  const server = `import json, sys
for line in sys.stdin:
    m = json.loads(line)
    if "id" in m:
        print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": {
            "protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"},
            "tools": [{"name": "t", "inputSchema": {"type": "object"}}],
            "content": [{"type": "text", "text": "got " + str(m.get("params", {}).get("arguments"))}]}}), flush=True)
`
  await call('file_write', { file: 's.py', content: server })
  const content = '{"mcpServers": {"s": {"command": "python3", "args": ["s.py"]}}}'
  await call('file_write', { file: '.mcp.json', content })
  const { servers } = (await call('mcp_list_servers')).fields
  assert.deepEqual(servers, [{ name: 's', transport: 'stdio', target: 'python3 s.py' }])
  assert.equal((await call('mcp_list_tools', { server_name: 's' })).fields.tools[0].name, 't')
  const answer = await call('mcp_execute', { server_name: 's', tool_name: 't', arguments: { a: 1 } })
  assert.equal(answer.text, "got {'a': 1}\n")
})

test('sandboxes and jobs', async () => {
  const own = (await call('sandbox_get')).fields
  const { id: sandbox } = (await call('sandbox_create', { key: 'second' })).fields
  assert.match((await call('sandbox_list')).text, new RegExp(own.id))
  assert.equal((await call('sandbox_pause', { sandbox })).fields.state, 'paused')
  assert.equal((await call('sandbox_resume', { sandbox })).fields.state, 'running')
  await call('sandbox_extend', { sandbox, seconds: 7200 })
  assert.equal((await call('workspace_health', { sandbox })).fields.healthy, true)
  assert.equal((await call('workspace_info', { sandbox })).fields.directory, '/workspace')
  const long = await run('sleep 600', { sandbox, wait: 0.2 })
  assert.equal((await call('job_get', { job_id: long.exec_id })).fields.state, 'running')
  assert.match((await call('job_list', { sandbox })).text, new RegExp(long.exec_id))
  await call('job_cancel', { job_id: long.exec_id })
  assert.equal((await call('job_wait', { job_id: long.exec_id })).fields.state, 'cancelled')
  await call('sandbox_delete', { sandbox })
  await refused('shell_exec', { command: 'true', sandbox }, 'not_found')
  assert.match((await call('template_list')).text, /python/)
  assert.ok((await call('usage_limits')).fields.limits.length > 0)
})

test('resources', async () => {
  const uris = (await client.listResources()).resources.map((r) => r.uri)
  assert.deepEqual(uris.sort(), ['sandyard://sandboxes', 'sandyard://templates'])
  assert.match((await client.readResource({ uri: 'sandyard://templates' })).contents[0].text, /python/)
})

test('every tool was called', async () => {
  const { tools } = await client.listTools()
  assert.deepEqual(tools.map((t) => t.name).filter((name) => !called.has(name)), [])
})

// inspect runs the inspector, which writes the server's answer to stdout.
async function inspect(...args) {
  const program = 'node_modules/.bin/mcp-inspector'
  const url = `${MCP_URL}?session=inspector&tools=all`
  const all = ['--cli', url, '--transport', 'http', '--header', `Authorization: ${headers.Authorization}`, ...args]
  const { stdout, stderr } = await promisify(execFile)(program, all, { maxBuffer: 1 << 24 })
  return { answer: JSON.parse(stdout), stderr }
}

test("the inspector's list of tools", async () => {
  const { answer, stderr } = await inspect('--method', 'tools/list', '--strict')
  const { tools } = await client.listTools()
  assert.deepEqual(answer.tools.map((t) => t.name).sort(), tools.map((t) => t.name).sort(), stderr)
})

test("the inspector's calls", async () => {
  const shell = ['--method', 'tools/call', '--tool-name', 'shell_exec', '--tool-arg']
  assert.equal((await inspect(...shell, 'command=echo $((40 + 2))')).answer.structuredContent.stdout, '42\n')
  const { answer } = await inspect('--method', 'resources/list')
  assert.equal(answer.resources.length, 2)
})

// In make verify: a process for each tool. Without arguments most of them say what they need.
if (process.env.STRICT === '1') {
  test('the inspector calls every tool', async () => {
    const left = (await client.listTools()).tools.map((t) => t.name)
    const callThem = async () => {
      for (let name = left.pop(); name; name = left.pop()) {
        // It ends with an error where the tool's answer is one, which it writes to stdout all the same.
        const answer = await inspect('--method', 'tools/call', '--tool-name', name)
          .then((done) => done.answer, (error) => JSON.parse(error.stdout))
        assert.ok(answer.content.length > 0, name)
        if (answer.isError) assert.match(answer.structuredContent.error.code, /^[a-z_]+$/, name)
      }
    }
    await Promise.all([callThem(), callThem(), callThem()])
  })
}

// clear deletes the sandboxes, which would otherwise end by their timeouts.
async function clear() {
  const base = MCP_URL.replace(/\/mcp$/, '/v1/sandboxes')
  const { sandboxes } = await (await fetch(base, { headers })).json()
  for (const { id } of sandboxes) await fetch(`${base}/${id}?force=true&wait=30s`, { method: 'DELETE', headers })
}

let failed = 0
await client.connect(new StreamableHTTPClientTransport(new URL(`${MCP_URL}?tools=all`), { requestInit: { headers } }))
for (const { name, run } of cases) {
  const began = Date.now()
  let timer
  const limit = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error('not done after two minutes')), 120_000)
  })
  try {
    await Promise.race([run(), limit])
    console.log(`ok   ${name} (${Date.now() - began} ms)`)
  } catch (error) {
    failed++
    console.log(`FAIL ${name}: ${error?.stack ?? error}\n${error?.stderr ?? ''}\n${error?.stdout?.slice(0, 3000) ?? ''}`)
  } finally {
    clearTimeout(timer)
  }
}
await client.close()
await clear()
console.log(failed ? `${failed} of ${cases.length} failed` : `all ${cases.length} cases passed`)
process.exit(failed ? 1 : 0)
