// Drives a Sandyard server with E2B's own client. The environment says where it is: E2B_API_URL, E2B_SANDBOX_URL and
// E2B_API_KEY. Every case prints one line; the exit code says whether all went well.
import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import http from 'node:http'
import net from 'node:net'
import { CommandExitError, FileType, Sandbox } from 'e2b'
import WebSocket from 'ws'

const edge = new URL(process.env.E2B_SANDBOX_URL)
const cases = []
const test = (name, run) => cases.push({ name, run })

// patience bounds one case: a suite that hangs says nothing.
const patience = 120_000

async function runAll() {
  const only = process.argv[2]
  let failed = 0
  for (const { name, run } of cases.filter((c) => !only || c.name.includes(only))) {
    const began = Date.now()
    let timer
    const limit = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Error(`not done after ${patience} ms`)), patience)
    })
    try {
      await Promise.race([run(), limit])
      console.log(`ok   ${name} (${Date.now() - began} ms)`)
    } catch (error) {
      failed++
      console.log(`FAIL ${name}: ${error?.stack ?? error}`)
    } finally {
      clearTimeout(timer)
    }
  }
  return failed
}

let sandbox

test('create', async () => {
  sandbox = await Sandbox.create({ timeoutMs: 300_000, metadata: { suite: 'js', 'a key': 'a/ä=&value' }, envs: { GREETING: 'hello' } })
  assert.match(sandbox.sandboxId, /^[a-z0-9]+$/)
  assert.equal(await sandbox.isRunning(), true)
})

test('command: output, streams apart, environment, directory', async () => {
  const out = []
  const done = await sandbox.commands.run('echo $GREETING; echo $EXTRA; pwd; echo problem >&2', {
    envs: { EXTRA: 'more' }, cwd: '/tmp', onStdout: (text) => { out.push(text) },
  })
  assert.equal(done.stdout, 'hello\nmore\n/tmp\n')
  assert.equal(done.stderr, 'problem\n')
  assert.equal(out.join(''), done.stdout)
})

test('command: a failure is an error with its exit code', async () => {
  await assert.rejects(sandbox.commands.run('echo partial; exit 7'), (error) => {
    assert.ok(error instanceof CommandExitError)
    assert.equal(error.exitCode, 7)
    assert.equal(error.stdout, 'partial\n')
    return true
  })
})

test('command: as the sandbox\'s user, and as nobody else', async () => {
  const { stdout } = await sandbox.commands.run('id -u')
  assert.equal(stdout, '1000\n')
  await assert.rejects(sandbox.commands.run('id -u', { user: 'root' }))
})

test('command: timeout', async () => {
  await assert.rejects(sandbox.commands.run('sleep 300', { timeoutMs: 700 }), /timed out|deadline/i)
})

test('command: in the background, with input, listed, killed', async () => {
  const cat = await sandbox.commands.run('cat', { background: true, stdin: true })
  await sandbox.commands.sendStdin(cat.pid, 'line\n')
  await sandbox.commands.closeStdin(cat.pid)
  assert.equal((await cat.wait()).stdout, 'line\n')

  const sleep = await sandbox.commands.run('sleep 300', { background: true })
  assert.ok((await sandbox.commands.list()).some((p) => p.pid === sleep.pid))
  assert.equal(await sandbox.commands.kill(sleep.pid), true)
  await assert.rejects(sleep.wait())
  assert.equal(await sandbox.commands.kill(sleep.pid), false)
})

test('command: joined by a second client', async () => {
  const first = await sandbox.commands.run('read word; echo got $word', { background: true, stdin: true })
  await first.disconnect()
  const other = await Sandbox.connect(sandbox.sandboxId)
  const again = await other.commands.connect(first.pid)
  await other.commands.sendStdin(first.pid, 'it\n')
  assert.match((await again.wait()).stdout, /got it/)
})

test('command: a megabyte and more of output', async () => {
  const { stdout } = await sandbox.commands.run('head -c 5000000 /dev/zero | tr "\\0" x')
  assert.equal(stdout.length, 5_000_000)
})

test('commands: fifty at once', async () => {
  const all = await Promise.all(Array.from({ length: 50 }, (_, i) => sandbox.commands.run(`echo ${i}`)))
  all.forEach((done, i) => assert.equal(done.stdout, `${i}\n`))
})

test('files: text, list, info, exists, rename, remove', async () => {
  const written = await sandbox.files.write('dir/a.txt', 'grüße\n')
  assert.equal(written.name, 'a.txt')
  assert.equal(await sandbox.files.read('dir/a.txt'), 'grüße\n')
  assert.equal(await sandbox.files.exists('dir/a.txt'), true)
  assert.equal(await sandbox.files.exists('dir/b.txt'), false)
  const [entry] = await sandbox.files.list('dir')
  assert.deepEqual([entry.name, entry.type, entry.path], ['a.txt', FileType.FILE, written.path])
  const info = await sandbox.files.getInfo('dir/a.txt')
  assert.equal(info.size, 8)
  await sandbox.files.rename('dir/a.txt', 'dir/b.txt')
  assert.equal(await sandbox.files.exists('dir/a.txt'), false)
  await sandbox.files.makeDir('dir/deeper/still')
  assert.equal((await sandbox.files.list('dir', { depth: 3 })).length, 3)
  await sandbox.files.remove('dir')
  assert.equal(await sandbox.files.exists('dir'), false)
  await assert.rejects(sandbox.files.read('dir/b.txt'), /not found|does not exist/i)
})

test('files: several at once', async () => {
  const files = Array.from({ length: 5 }, (_, i) => ({ path: `many/${i}.txt`, data: `content ${i}` }))
  assert.equal((await sandbox.files.write(files)).length, 5)
  assert.equal(await sandbox.files.read('many/4.txt'), 'content 4')
})

test('files: every byte value', async () => {
  const bytes = new Uint8Array(Buffer.concat([Buffer.from(Array.from({ length: 256 }, (_, i) => i)), randomBytes(1 << 16)]))
  await sandbox.files.write('bytes.bin', bytes.buffer)
  assert.deepEqual(await sandbox.files.read('bytes.bin', { format: 'bytes' }), bytes)
})

test('files: 100 MB, up and down', async () => {
  const bytes = Buffer.alloc(100_000_000, randomBytes(4096))
  const digest = createHash('sha256').update(bytes).digest('hex')
  await sandbox.files.write('large.bin', new Blob([bytes]))
  const { stdout } = await sandbox.commands.run('sha256sum large.bin')
  assert.equal(stdout.slice(0, 64), digest)
  const hash = createHash('sha256')
  for await (const part of await sandbox.files.read('large.bin', { format: 'stream' })) hash.update(part)
  assert.equal(hash.digest('hex'), digest)
  await sandbox.files.remove('large.bin')
})

// signed asks the edge for what a signed URL of the client leads to: in a deployment its host is the edge's.
function signed(url, options = {}) {
  const { pathname, search } = new URL(url)
  return fetch(new URL(pathname + search, edge), {
    ...options, headers: { ...options.headers, 'E2b-Sandbox-Id': sandbox.sandboxId, 'E2b-Sandbox-Port': '49983' },
  })
}

test('files: metadata, compressed', async () => {
  const written = await sandbox.files.write('meta.txt', 'small '.repeat(1000), { metadata: { Author: 'some one' }, gzip: true })
  assert.deepEqual(written.metadata, { author: 'some one' })
  assert.deepEqual((await sandbox.files.getInfo('meta.txt')).metadata, { author: 'some one' })
  assert.equal(await sandbox.files.read('meta.txt', { gzip: true }), 'small '.repeat(1000))
})

test('files: watched', async () => {
  await sandbox.files.makeDir('watched')
  assert.equal(await sandbox.files.makeDir('watched'), false)
  const events = []
  const watcher = await sandbox.files.watchDir('watched', (event) => events.push(event), { recursive: true, includeEntry: true })
  await sandbox.files.write('watched/deep/f.txt', 'text')
  await sandbox.commands.run('mv watched/deep/f.txt watched/g.txt; rm watched/g.txt')
  const seen = () => events.map((event) => `${event.type} ${event.name}`)
  await until(() => seen().includes('remove g.txt'))
  for (const want of ['create deep', 'create deep/f.txt', 'rename deep/f.txt', 'create g.txt']) assert.ok(seen().includes(want), `${want} in ${seen()}`)
  assert.equal(events.find((event) => event.name === 'deep').entry.type, FileType.DIR)
  await watcher.stop()
  await assert.rejects(sandbox.files.watchDir('absent', () => {}), /not found|does not exist/i)
})

test('files: signed URLs', async () => {
  const form = new FormData()
  form.append('file', new Blob(['through a URL']), 'signed.txt')
  const up = await signed(await sandbox.uploadUrl('/workspace/signed.txt'), { method: 'POST', body: form })
  assert.equal(up.status, 200)
  const url = await sandbox.downloadUrl('/workspace/signed.txt', { useSignatureExpiration: 60 })
  assert.equal(await (await signed(url)).text(), 'through a URL')
  assert.equal((await signed(url.replace('signed.txt', 'other.txt'))).status, 401)
  assert.equal((await signed(await sandbox.downloadUrl('/workspace/signed.txt', { useSignatureExpiration: -5 }))).status, 401)
})

test('terminal', async () => {
  let seen = ''
  const terminal = await sandbox.pty.create({ cols: 91, rows: 33, onData: (data) => { seen += new TextDecoder().decode(data) } })
  await sandbox.pty.sendInput(terminal.pid, new TextEncoder().encode('stty size\n'))
  await until(() => seen.includes('33 91'))
  await sandbox.pty.resize(terminal.pid, { cols: 70, rows: 20 })
  await sandbox.pty.sendInput(terminal.pid, new TextEncoder().encode('stty size; exit 3\n'))
  await assert.rejects(terminal.wait(), (error) => error.exitCode === 3)
  assert.ok(seen.includes('20 70'), seen)
})

async function until(ok) {
  const deadline = Date.now() + 60_000
  while (!ok()) {
    assert.ok(Date.now() < deadline, 'waited in vain')
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}

// server is a program for the sandbox: HTTP on the port given, with streamed answers, echoes and WebSockets, which say in
// capitals what they are told.
const server = `
import base64, hashlib, http.server, socketserver, sys, threading, time
heard = threading.Event()
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def log_message(self, *args): pass
    def do_GET(self):
        if self.headers.get('Upgrade'):
            self.websocket()
            return
        if self.path == '/slow':
            self.send_response(200)
            self.send_header('Transfer-Encoding', 'chunked')
            self.end_headers()
            for i in range(3):
                self.wfile.write(b'2\\r\\n%d\\n\\r\\n' % i); self.wfile.flush()
                time.sleep(0.4)
            self.wfile.write(b'0\\r\\n\\r\\n')
            return
        if self.path == '/half':
            self.send_response(200)
            self.send_header('Transfer-Encoding', 'chunked')
            self.end_headers()
            self.wfile.write(b'4\\r\\nhalf\\r\\n'); self.wfile.flush()
            self.wfile.write(b'5\\r\\n%s\\r\\n0\\r\\n\\r\\n' % (b' done' if heard.wait(60) else b' deaf'))
            return
        if self.path == '/heard': heard.set()
        body = (self.path + ' ' + str(self.headers.get('Host')) + ' ' + str(self.headers.get('E2b-Traffic-Access-Token'))).encode()
        self.send_response(200); self.send_header('Content-Length', str(len(body))); self.end_headers(); self.wfile.write(body)
    def websocket(self):
        key = self.headers['Sec-WebSocket-Key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11'
        self.send_response(101)
        self.send_header('Upgrade', 'websocket')
        self.send_header('Connection', 'Upgrade')
        self.send_header('Sec-WebSocket-Accept', base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.end_headers()
        self.close_connection = True
        kind = 0
        while kind != 8:
            kind, n = self.rfile.read(2)
            kind, n = kind & 15, n & 127
            if n > 125: n = int.from_bytes(self.rfile.read(2 if n == 126 else 8), 'big')
            mask, data = self.rfile.read(4), self.rfile.read(n)
            data = (int.from_bytes(data, 'big') ^ int.from_bytes((mask * (n // 4 + 1))[:n], 'big')).to_bytes(n, 'big')
            if kind == 1: data = data.upper()
            if kind == 9: kind = 10
            size = bytes([n]) if n < 126 else b'\\x7f' + n.to_bytes(8, 'big')
            self.wfile.write(bytes([128 | kind]) + size + data)
    def do_POST(self):
        n = int(self.headers['Content-Length'])
        self.send_response(200); self.send_header('Content-Length', str(n)); self.end_headers()
        while n:
            data = self.rfile.read(min(n, 65536)); self.wfile.write(data); n -= len(data)
class Server(socketserver.ThreadingMixIn, http.server.HTTPServer): daemon_threads = True
Server(('127.0.0.1', int(sys.argv[1])), Handler).serve_forever()
`

function visit(path, { port = 8000, token = sandbox.trafficAccessToken, host, onData = () => {}, ...options } = {}) {
  const headers = host ? { Host: host } : { 'E2b-Sandbox-Id': sandbox.sandboxId, 'E2b-Sandbox-Port': String(port) }
  if (token) headers['e2b-traffic-access-token'] = token
  return new Promise((resolve, reject) => {
    const request = http.request(new URL(path, edge), { ...options, headers: { ...headers, ...options.headers } })
    request.on('error', reject)
    request.on('response', (response) => {
      const parts = []
      response.on('data', (data) => { parts.push(data); onData() })
      response.on('error', reject)
      response.on('end', () => resolve({
        status: response.statusCode, headers: response.headers, body: Buffer.concat(parts),
      }))
    })
    request.end(options.body)
  })
}

test('port: nothing listens', async () => {
  const answer = await visit('/', { port: 8999 })
  assert.equal(answer.status, 502)
  assert.deepEqual(JSON.parse(answer.body), {
    sandboxId: sandbox.sandboxId, message: 'The sandbox is running but port is not open', port: 8999, code: 502,
  })
})

test('port: HTTP by header and by host, private without its token', async () => {
  await sandbox.files.write('server.py', server)
  await sandbox.commands.run('python3 server.py 8000', { background: true, timeoutMs: 0 })
  for (let answer; answer?.status !== 200;) {
    answer = await visit('/a?b=c')
    if (answer.status === 200) assert.equal(answer.body.toString(), `/a?b=c ${edge.host} None`)
  }
  const host = sandbox.getHost(8000)
  assert.match(host, new RegExp(`^8000-${sandbox.sandboxId}\\.`))
  assert.equal((await visit('/x', { host })).body.toString(), `/x ${host} None`)
  assert.equal((await visit('/', { token: '' })).status, 403)
  assert.equal((await visit('/', { token: 'ta_wrong' })).status, 403)
})

test('port: a browser trades its token for a cookie', async () => {
  const query = `sandyard_token=${sandbox.trafficAccessToken}`
  const first = await visit(`/page?${query}&q=1`, { token: '', headers: { Accept: 'text/html' } })
  assert.deepEqual([first.status, first.headers.location], [303, '/page?q=1'])
  const [cookie] = first.headers['set-cookie'][0].split(';')
  assert.equal((await visit('/page', { token: '', headers: { Cookie: cookie } })).status, 200)
})

test('port: answers stream', async () => {
  let said // the second half is sent when the first has come
  const answer = await visit('/half', { onData: () => { said ??= visit('/heard') } })
  assert.equal(answer.body.toString(), 'half done')
  assert.equal((await said).status, 200)
})

test('port: a large body both ways at once', async () => {
  const body = randomBytes(20_000_000)
  const answer = await visit('/', { method: 'POST', body, headers: { 'Content-Length': body.length } })
  assert.ok(answer.body.equals(body))
})

test('port: WebSockets, by header and by host, private without the token', async () => {
  const token = { 'e2b-traffic-access-token': sandbox.trafficAccessToken }
  const ways = [{ 'E2b-Sandbox-Id': sandbox.sandboxId, 'E2b-Sandbox-Port': '8000' }, { Host: sandbox.getHost(8000) }]
  for (const way of ways) {
    const socket = new WebSocket(`ws://${edge.host}/socket`, { headers: { ...way, ...token } })
    const heard = []
    let pongs = 0
    socket.on('message', (data, binary) => heard.push(binary ? data : data.toString()))
    socket.on('pong', () => { pongs++ })
    await new Promise((resolve, reject) => { socket.once('open', resolve); socket.once('error', reject) })
    for (const word of ['one', 'two', 'grüße']) socket.send(word)
    const bytes = randomBytes(300_000)
    socket.send(bytes)
    socket.ping()
    await until(() => heard.length === 4 && pongs === 1)
    assert.deepEqual(heard.slice(0, 3), ['ONE', 'TWO', 'GR\u00fc\u00dfE'])
    assert.ok(heard[3].equals(bytes))
    socket.close(1000, 'done')
    assert.equal(await new Promise((resolve) => socket.once('close', resolve)), 1000)
  }
  const closed = new WebSocket(`ws://${edge.host}/socket`, { headers: ways[0] })
  const refusal = await new Promise((resolve) => { closed.once('unexpected-response', (_, answer) => resolve(answer.statusCode)); closed.once('error', resolve) })
  assert.equal(refusal, 403)
})

test('guest: without its token', async () => {
  for (const headers of [{}, { 'X-Access-Token': 'ea_wrong' }]) {
    const answer = await visit('/files?path=server.py', { port: 49983, headers })
    assert.equal(answer.status, 401)
  }
  assert.equal((await visit('/execs', { port: 49983 })).status, 404)
})

test('edge: a sandbox that is not there', async () => {
  const answer = await visit('/', { headers: { 'E2b-Sandbox-Id': 'sbnone' } })
  assert.equal(answer.status, 502)
  assert.deepEqual(JSON.parse(answer.body), { sandboxId: 'sbnone', message: 'The sandbox was not found', code: 502 })
})

test('edge: a client that leaves does not disturb others', async () => {
  await Promise.all(Array.from({ length: 10 }, () => new Promise((resolve, reject) => {
    const socket = net.connect(Number(edge.port), edge.hostname, () => {
      socket.write(`GET /slow HTTP/1.1\r\nHost: ${sandbox.getHost(8000)}\r\ne2b-traffic-access-token: ${sandbox.trafficAccessToken}\r\n\r\n`)
      socket.once('data', () => { socket.destroy(); resolve() })
    })
    socket.on('error', reject)
  })))
  assert.equal((await visit('/still')).status, 200)
})

test('pause keeps the memory, connect resumes', async () => {
  const counter = await sandbox.commands.run('i=0; while read line; do i=$((i+1)); echo $i; done', { background: true, stdin: true, timeoutMs: 0 })
  await sandbox.commands.sendStdin(counter.pid, 'x\nx\n')
  await until(() => counter.stdout === '1\n2\n')
  await counter.disconnect()
  assert.equal(await sandbox.pause(), true)
  assert.equal(await sandbox.pause(), false)
  assert.equal(await sandbox.isRunning(), false)
  assert.equal((await Sandbox.getInfo(sandbox.sandboxId)).state, 'paused')
  const resumed = await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 300_000 })
  assert.equal(await resumed.isRunning(), true)
  const again = await resumed.commands.connect(counter.pid)
  await resumed.commands.sendStdin(counter.pid, 'x\n')
  await resumed.commands.closeStdin(counter.pid)
  assert.equal((await again.wait()).stdout.split('\n').at(-2), '3')
})

test('info and timeout', async () => {
  const info = await sandbox.getInfo()
  assert.deepEqual([info.state, info.metadata.suite, info.metadata['a key']], ['running', 'js', 'a/ä=&value'])
  await sandbox.setTimeout(600_000)
  const longer = await sandbox.getInfo()
  assert.ok(Math.abs(longer.endAt - Date.now() - 600_000) < 15_000, String(longer.endAt))
  await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 1_000 })
  assert.ok((await sandbox.getInfo()).endAt - Date.now() > 500_000, 'connect has shortened the time')
})

test('list: pages, metadata, states', async () => {
  const mark = randomBytes(6).toString('hex')
  const made = await Promise.all([1, 2, 3].map((n) => Sandbox.create({ timeoutMs: 120_000, metadata: { mark, n: String(n) } })))
  try {
    const pages = Sandbox.list({ limit: 2, query: { metadata: { mark } } })
    const first = await pages.nextItems()
    assert.deepEqual([first.length, pages.hasNext], [2, true])
    const rest = await pages.nextItems()
    assert.deepEqual([rest.length, pages.hasNext], [1, false])
    assert.deepEqual([...first, ...rest].map((s) => s.sandboxId).sort(), made.map((s) => s.sandboxId).sort())
    await made[0].pause()
    const paused = await Sandbox.list({ query: { metadata: { mark }, state: ['paused'] } }).nextItems()
    assert.deepEqual(paused.map((s) => s.sandboxId), [made[0].sandboxId])
  } finally {
    await Promise.all(made.map((s) => s.kill()))
  }
  assert.deepEqual(await Sandbox.list({ query: { metadata: { mark } } }).nextItems(), [])
})

// endsIn checks when a sandbox ends, in seconds from now.
async function endsIn(id, seconds) {
  const left = ((await Sandbox.getInfo(id)).endAt - Date.now()) / 1000
  assert.ok(Math.abs(left - seconds) < 30, `it ends in ${left} s, not in ${seconds}`)
}

test('create and connect without a timeout', async () => {
  const box = await Sandbox.create()
  try {
    await endsIn(box.sandboxId, 300)
    await box.setTimeout(900_000)
    await Sandbox.connect(box.sandboxId)
    await endsIn(box.sandboxId, 900)
    await box.pause()
    const resumed = await Sandbox.connect(box.sandboxId)
    await endsIn(box.sandboxId, 300)
    assert.equal((await resumed.commands.run('echo on')).stdout, 'on\n')
  } finally {
    await box.kill()
  }
})

test('list: metadata of any text, template, order, start, several states', async () => {
  const mark = `50% + a/b=&ä ${randomBytes(6).toString('hex')}`
  const made = []
  try {
    for (const template of ['base', 'python', 'base']) made.push(await Sandbox.create(template, { timeoutMs: 120_000, metadata: { mark } }))
    await made[1].pause()
    const all = async (query, order) => {
      const found = []
      for (const pages = Sandbox.list({ limit: 2, order, query: { metadata: { mark }, ...query } }); pages.hasNext;) found.push(...(await pages.nextItems()))
      return found
    }
    const ids = async (query, order) => (await all(query, order)).map((s) => s.sandboxId)
    const oldest = made.map((s) => s.sandboxId)
    assert.deepEqual(await ids({}, 'asc'), oldest)
    assert.deepEqual(await ids({}), oldest.toReversed())
    assert.deepEqual(await ids({ state: ['running', 'paused'] }, 'asc'), oldest)
    assert.deepEqual(await ids({ state: ['running'] }, 'asc'), [oldest[0], oldest[2]])
    assert.deepEqual(await ids({ template: 'base' }, 'asc'), oldest)
    assert.deepEqual(await ids({ template: 'no-such-template' }), [])
    const [{ startedAt }] = (await all({}, 'asc')).slice(1)
    assert.deepEqual(await ids({ startedAfter: startedAt }, 'asc'), oldest.slice(1))
  } finally {
    await Promise.all(made.map((s) => s.kill()))
  }
})

test('metrics', async () => {
  await sandbox.files.write('ballast', 'x'.repeat(10_000_000))
  const samples = await sandbox.getMetrics({ start: new Date(Date.now() - 3_600_000), end: new Date() })
  for (const m of samples) {
    assert.ok(m.memTotal >= 128 << 20 && m.memUsed > 0 && m.memUsed <= m.memTotal, JSON.stringify(m))
    assert.ok(m.diskUsed >= 0 && m.diskUsed <= m.diskTotal, JSON.stringify(m))
    assert.ok(m.cpuCount >= 1 && m.cpuUsedPct >= 0 && m.cpuUsedPct <= 100, JSON.stringify(m))
  }
  const now = samples.at(-1)
  assert.ok(now.diskUsed >= 10_000_000, JSON.stringify(now))
  assert.ok(Math.abs(now.timestamp - Date.now()) < 60_000, String(now.timestamp))
  assert.deepEqual(await sandbox.getMetrics({ end: new Date(Date.now() - 3_600_000) }), [])
  await sandbox.files.remove('ballast')
})

test('lifecycle: a timeout pauses, traffic resumes', async () => {
  const box = await Sandbox.create({ timeoutMs: 120_000, lifecycle: { onTimeout: 'pause', autoResume: true } })
  try {
    assert.deepEqual((await box.getInfo()).lifecycle, { onTimeout: 'pause', autoResume: true })
    await box.commands.run('echo kept >/tmp/note')
    await box.setTimeout(1_000)
    const deadline = Date.now() + 60_000
    while ((await Sandbox.getInfo(box.sandboxId)).state !== 'paused') {
      assert.ok(Date.now() < deadline, 'it runs on')
      await new Promise((resolve) => setTimeout(resolve, 200))
    }
    assert.equal((await Sandbox.getInfo(box.sandboxId)).state, 'paused')
    await Sandbox.connect(box.sandboxId, { timeoutMs: 120_000 })
    await box.pause()
    assert.equal((await box.commands.run('cat /tmp/note')).stdout, 'kept\n') // which wakes it
    assert.equal((await Sandbox.getInfo(box.sandboxId)).state, 'running')
  } finally {
    await box.kill()
  }
})

test('what is not offered is refused, not ignored', async () => {
  for (const refused of [
    () => sandbox.createSnapshot(), () => sandbox.fork(), () => sandbox.pause({ keepMemory: false }), () => Sandbox.listSnapshots().nextItems(),
    () => Sandbox.create({ network: { maskRequestHost: 'localhost:${PORT}' } }), () => Sandbox.create({ mcp: { browserbase: {} } }),
    () => Sandbox.create({ lifecycle: { onTimeout: { action: 'pause', keepMemory: false } } }),
  ]) {
    await assert.rejects(refused, (error) => {
      assert.match(error.message, /^(400|501): /)
      return true
    })
  }
  assert.equal(await sandbox.isRunning(), true)
})

test('public ports on request', async () => {
  const open = await Sandbox.create({ timeoutMs: 60_000, network: { allowPublicTraffic: true } })
  try {
    const answer = await visit('/', { token: '', port: 8999, headers: { 'E2b-Sandbox-Id': open.sandboxId } })
    assert.equal(answer.status, 502)
  } finally {
    await open.kill()
  }
})

test('timeout ends the sandbox', async () => {
  const short = await Sandbox.create({ timeoutMs: 2_000 })
  const deadline = Date.now() + 60_000
  while (await short.isRunning()) {
    assert.ok(Date.now() < deadline, 'it runs on')
    await new Promise((resolve) => setTimeout(resolve, 200))
  }
  await assert.rejects(short.commands.run('true'))
})

test('errors', async () => {
  await assert.rejects(Sandbox.create('no-such-template'), /not found/)
  await assert.rejects(Sandbox.create({ timeoutMs: 100 * 3_600_000 }), /timeout/i)
  await assert.rejects(Sandbox.create({ apiKey: 'e2b_' + '0'.repeat(40) }), /key/i)
  await assert.rejects(Sandbox.connect('sbnone'), /not found|no such sandbox/i)
  assert.equal(await Sandbox.kill('sbnone'), false)
})

test('kill', async () => {
  assert.equal(await sandbox.kill(), true)
  assert.equal(await sandbox.isRunning(), false)
  assert.equal(await Sandbox.kill(sandbox.sandboxId), false)
  await assert.rejects(sandbox.commands.run('true'))
})

const failed = await runAll()
console.log(failed ? `${failed} of ${cases.length} failed` : `all ${cases.length} cases passed`)
process.exit(failed ? 1 : 0)
