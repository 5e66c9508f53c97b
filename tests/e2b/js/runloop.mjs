// Drives what stands in Runloop's place with Runloop's official client. The environment says where it is:
// RUNLOOP_BASE_URL, RUNLOOP_API_KEY, and RUNLOOP_TUNNEL_URL for ports. Every case prints one line; the exit code says
// whether all went well.
import assert from 'node:assert/strict'
import http from 'node:http'
import {
  AuthenticationError, BadRequestError, ConflictError, NotFoundError, Runloop, RunloopSDK, toFile,
} from '@runloop/api-client'

const client = new Runloop()
const cases = []
const test = (name, run) => cases.push({ name, run })

// patience bounds one case: a suite that hangs says nothing.
const patience = 120_000

async function runAll() {
  let failed = 0
  for (const { name, run } of cases) {
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

async function eventually(what, done) {
  const deadline = Date.now() + 60_000
  while (!(await done())) {
    assert.ok(Date.now() < deadline, `still not: ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 100))
  }
}

const refused = (type, message, promise) => assert.rejects(promise, (error) => {
  assert.ok(error instanceof type, `${error?.constructor?.name}: ${error}`)
  assert.match(error.message, message)
  return true
})

const once = { maxRetries: 0 } // the client repeats what is in conflict
const boxes = client.devboxes
let id
const sh = (command, more) => boxes.executeAndAwaitCompletion(id, { command, ...more })

test('create, wait, retrieve, list', async () => {
  const asked = { environment_variables: { GREETING: 'hello' }, metadata: { team: 'a' } }
  const launch = { keep_alive_time_seconds: 3600, resource_size_request: 'SMALL' }
  const made = await boxes.create({ ...asked, name: 'one', launch_parameters: launch })
  assert.match(made.id, /^dbx_\w+$/)
  assert.equal(made.status, 'provisioning')
  id = made.id
  assert.equal((await boxes.awaitRunning(id)).status, 'running')
  const again = await boxes.retrieve(id)
  assert.deepEqual([again.name, again.metadata, again.launch_parameters], ['one', { team: 'a' }, launch])
  const other = await boxes.create({ name: 'one' })
  const ids = []
  for await (const one of boxes.list({ limit: 1 })) ids.push(one.id)
  assert.deepEqual(ids, [id, other.id], 'in order, over two pages; names are not unique')
  await boxes.shutdown(other.id)
  assert.equal((await boxes.retrieve(other.id)).status, 'shutdown')
  await refused(BadRequestError, /already/, boxes.shutdown(other.id))
  await refused(NotFoundError, /not found/, boxes.retrieve('dbx_none'))
  await refused(NotFoundError, /not found/, boxes.create({ blueprint_name: 'none' }))
  await refused(AuthenticationError, /./, new Runloop({ bearerToken: 'other' }).devboxes.retrieve(id))
})

test('commands', async () => {
  const run = await sh('echo $GREETING; echo more >&2; exit 3')
  assert.deepEqual([run.status, run.exit_status, run.stdout, run.stderr], ['completed', 3, 'hello\n', 'more\n'])
  assert.deepEqual([run.stdout_truncated, run.stderr_truncated], [false, false])
  assert.equal((await sh('pwd')).stdout, '/home/user\n')
  assert.equal((await sh('kill -9 $$')).exit_status, 137)
  assert.equal((await sh(`printf 'a\\377b'`)).stdout, 'a\ufffdb')
  const unread = await boxes.execute(id, { command: 'exit 0', command_id: 'c1', last_n: '0' })
  assert.equal(unread.exit_status, 0)
})

test('a command is named by its id', async () => {
  const ask = { command: 'echo x >>once; sleep 2; cat once', command_id: 'named', optimistic_timeout: 1 }
  const first = await boxes.execute(id, ask)
  assert.deepEqual([first.status, first.exit_status ?? null], ['running', null])
  const second = await boxes.execute(id, { ...ask, optimistic_timeout: 25 })
  assert.deepEqual([second.execution_id, second.status, second.stdout], [first.execution_id, 'completed', 'x\n'])
  const ended = await boxes.waitForCommand(id, first.execution_id, { statuses: ['completed'] })
  assert.equal(ended.stdout, 'x\n')
  assert.equal((await boxes.executions.awaitCompleted(id, first.execution_id)).stdout, 'x\n')
  await refused(NotFoundError, /./, boxes.waitForCommand(id, 'exec_none', { statuses: ['completed'] }))
  const long = await boxes.execute(id, { command: 'sleep 60', command_id: 'long', optimistic_timeout: 0 })
  const wait = boxes.waitForCommand(id, long.execution_id, { statuses: ['completed'], timeout_seconds: 1 }, once)
  await assert.rejects(wait, (error) => error.status === 408 && error.headers['x-should-retry'] === 'true')
})

test('the last lines', async () => {
  const all = await sh('seq 1000; seq 5 >&2')
  const lines = (from, to) => Array.from({ length: to - from + 1 }, (_, i) => `${from + i}\n`).join('')
  assert.deepEqual([all.stdout, all.stdout_truncated], [lines(901, 1000), true])
  assert.deepEqual([all.stderr, all.stderr_truncated], [lines(1, 5), false])
  const two = await sh('seq 1000; printf end', { last_n: '2' })
  assert.deepEqual([two.stdout, two.stdout_truncated], ['1000\nend', true])
  assert.equal((await sh('seq 1000', { last_n: '1000' })).stdout_truncated, false)
})

test('files', async () => {
  const bytes = Buffer.from(Array.from({ length: 300_000 }, (_, i) => (i * i) % 256))
  await boxes.uploadFile(id, { path: 'dir/b.bin', file: await toFile(bytes, 'b.bin') })
  const got = await boxes.downloadFile(id, { path: '/home/user/dir/b.bin' })
  assert.deepEqual(Buffer.from(await got.arrayBuffer()), bytes)
  assert.equal((await sh('stat -c %s dir/b.bin')).stdout, '300000\n')
  await boxes.uploadFile(id, { path: '/tmp/empty' })
  assert.equal((await sh('stat -c %s /tmp/empty')).stdout, '0\n')
  await refused(NotFoundError, /./, boxes.downloadFile(id, { path: 'none' }))
})

// askPort asks the tunnel's server itself, whatever the name in the URL resolves to here.
function askPort(tunnel, port, headers = {}) {
  const url = new URL(process.env.RUNLOOP_TUNNEL_URL)
  const host = `${port}-${tunnel.tunnel_key}.${url.host}`
  return new Promise((resolve, reject) => {
    const request = http.get({ host: '127.0.0.1', port: url.port, path: '/a%20b?c=d', headers: { ...headers, host } })
    request.on('error', reject)
    request.on('upgrade', (_, socket) => {
      socket.end('ping\n')
      socket.once('data', (data) => resolve([101, String(data)]))
    })
    request.on('response', async (answer) => {
      let text = ''
      for await (const part of answer) text += part
      resolve([answer.statusCode, text])
    })
  })
}

const server = `
import http.server
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.headers.get("Upgrade"):
            self.send_response(101)
            self.send_header("Connection", "Upgrade")
            self.send_header("Upgrade", "echo")
            self.end_headers()
            self.wfile.write(self.rfile.readline())
            self.close_connection = True
            return
        told = self.path + " " + str(self.headers.get("X-Runloop-Tunnel-Authorization"))
        self.send_response(200)
        self.send_header("Content-Length", str(len(told)))
        self.end_headers()
        self.wfile.write(told.encode())
http.server.ThreadingHTTPServer(("127.0.0.1", 8001), H).serve_forever()
`

test('tunnel', async () => {
  const tunnel = await boxes.enableTunnel(id, { auth_mode: 'authenticated' })
  assert.deepEqual(await boxes.enableTunnel(id, { auth_mode: 'open' }), tunnel, 'there is one of a devbox')
  assert.deepEqual((await boxes.retrieve(id)).tunnel, tunnel)
  const key = { 'x-runloop-tunnel-authorization': `Bearer ${tunnel.auth_token}` }
  assert.equal((await askPort(tunnel, 8001))[0], 401)
  assert.deepEqual(await askPort(tunnel, 8001, key), [502, '{"message":"no server"}\n'])
  await boxes.uploadFile(id, { path: 'server.py', file: await toFile(Buffer.from(server), 'server.py') })
  await boxes.execute(id, { command: 'exec python3 server.py', command_id: 'server', optimistic_timeout: 0 })
  await eventually('a server', async () => (await askPort(tunnel, 8001, key))[0] === 200)
  assert.deepEqual(await askPort(tunnel, 8001, key), [200, '/a%20b?c=d None'])
  assert.deepEqual(await askPort(tunnel, 8001, { ...key, connection: 'upgrade', upgrade: 'echo' }), [101, 'ping\n'])
})

test('suspend, resume', async () => {
  await sh('echo kept >kept; nohup sleep 4242 >nohup.out 2>&1 &')
  const sleepers = `cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c '[s]leep 4242'`
  assert.equal((await sh(sleepers)).stdout, '1\n', 'a process that its command leaves behind')
  const long = await boxes.execute(id, { command: 'sleep 600', command_id: 'cut', optimistic_timeout: 0 })
  assert.equal((await boxes.suspend(id)).status, 'suspending')
  assert.equal((await boxes.awaitSuspended(id)).status, 'suspended')
  await refused(BadRequestError, /not running/, boxes.execute(id, { command: 'true', command_id: 'late' }))
  await refused(BadRequestError, /not running/, boxes.suspend(id))
  assert.equal((await boxes.resume(id)).status, 'resuming')
  await boxes.awaitRunning(id)
  assert.equal((await sh('cat kept')).stdout, 'kept\n')
  assert.equal((await boxes.executions.awaitCompleted(id, long.execution_id)).exit_status, 137)
  assert.equal((await sh(sleepers)).stdout, '0\n', 'processes end with a suspend')
})

test('network policies', async () => {
  const deny = { name: 'deny-all', allow_all: false, allowed_hostnames: [] }
  const policy = await client.networkPolicies.create(deny, once)
  assert.deepEqual([policy.egress.allow_all, policy.egress.allowed_hostnames], [false, []])
  await refused(ConflictError, /exists/, client.networkPolicies.create(deny, once))
  const found = []
  for await (const one of client.networkPolicies.list({ name: 'deny' })) found.push(one.id)
  assert.deepEqual(found, [policy.id])
  const box = await boxes.create({ launch_parameters: { network_policy_id: policy.id } })
  assert.equal((await boxes.awaitRunning(box.id)).launch_parameters.network_policy_id, policy.id)
  await boxes.shutdown(box.id)
})

test('the newer client', async () => {
  const info = await new RunloopSDK().devbox.fromId(id).getInfo()
  assert.equal(info.status, 'running')
})

test('shutdown', async () => {
  assert.equal((await boxes.shutdown(id)).status, 'shutdown')
  const ended = await boxes.retrieve(id)
  assert.deepEqual([ended.status, ended.shutdown_reason], ['shutdown', 'api_shutdown'])
  await refused(BadRequestError, /not running/, boxes.execute(id, { command: 'true', command_id: 'gone' }))
})

const failed = await runAll()
console.log(failed ? `${failed} of ${cases.length} failed` : `all ${cases.length} cases passed`)
process.exit(failed ? 1 : 0)
