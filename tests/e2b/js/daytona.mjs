// Drives a Sandyard server with Daytona's official client. The environment says where it is: DAYTONA_API_URL,
// DAYTONA_API_KEY, and E2B_SANDBOX_URL for the edge. Every case prints one line; the exit code says whether all went
// well.
import assert from 'node:assert/strict'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import http from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import {
  Daytona, DaytonaCommandAlreadyCompletedError, DaytonaConflictError, DaytonaError, DaytonaFileNotFoundError,
  DaytonaGitAuthFailedError, DaytonaGitBranchExistsError, DaytonaGitBranchNotFoundError,
  DaytonaGitRepoNotFoundError, DaytonaNotFoundError, DaytonaProcessExecutionTimeoutError, DaytonaSessionEndedError,
} from '@daytona/sdk'

const client = new Daytona()
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
      console.log(`FAIL ${name}: ${error?.stack ?? error} ${error?.statusCode ?? ''} ${error?.code ?? ''}`)
    } finally {
      clearTimeout(timer)
    }
  }
  return failed
}

// refused expects an error of a class, with a text in its message.
async function refused(kind, part, promise) {
  await assert.rejects(promise, (error) => {
    assert.ok(error instanceof kind, `${error?.name} (${error?.statusCode} ${error?.code}): ${error?.message}`)
    assert.match(error.message, part)
    return true
  })
}

async function eventually(what, done) {
  const deadline = Date.now() + 60_000
  while (!(await done())) {
    assert.ok(Date.now() < deadline, `still not: ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 100))
  }
}

async function ids(query) {
  const found = []
  for await (const one of client.list(query)) found.push(one.id)
  return found
}

let box
const sh = async (command) => {
  const done = await box.process.executeCommand(command)
  assert.equal(done.exitCode, 0, done.result)
  return done.result
}

test('create, get, list, labels', async () => {
  box = await client.create({
    name: 'js', language: 'javascript', labels: { team: 'a' }, envVars: { GREETING: 'hello' }, autoStopInterval: 20,
  })
  assert.deepEqual([box.state, box.name, box.labels.team, box.autoStopInterval], ['started', 'js', 'a', 20])
  const again = await client.get('js')
  assert.deepEqual([again.id, again.env.GREETING], [box.id, 'hello'])
  await refused(DaytonaConflictError, /exists already/, client.create({ name: 'js' }))
  await refused(DaytonaNotFoundError, /no such sandbox/, client.get('nobody'))
  await refused(DaytonaError, /secrets is not supported/, client.create({ secrets: { A: 'b' } }))
  assert.deepEqual(await ids({ labels: { team: 'a' } }), [box.id])
  assert.deepEqual(await ids({ labels: { team: 'b' } }), [])
  assert.deepEqual(await box.setLabels({ team: 'b' }), { team: 'b' })
  const other = await client.create({ labels: { team: 'b' }, networkBlockAll: true })
  assert.deepEqual(await ids({ labels: { team: 'b' }, limit: 1 }), [other.id, box.id], 'newest first, over two pages')
  assert.deepEqual(await ids({ name: 'js', states: ['started'] }), [box.id])
  await other.delete(60, true)
  assert.equal(other.state, 'destroyed')
})

test('intervals', async () => {
  await box.setAutostopInterval(30)
  await box.setAutoDeleteInterval(60)
  await box.refreshData()
  assert.deepEqual([box.autoStopInterval, box.autoDeleteInterval], [30, 60])
  await box.refreshActivity()
  await box.setTtl(600)
  await box.refreshData()
  const left = (new Date(box.autoDestroyAt) - Date.now()) / 60_000
  assert.ok(left > 500 && left <= 601, box.autoDestroyAt)
  await box.updateNetworkSettings({ networkBlockAll: true })
  assert.equal(box.networkBlockAll, true)
})

test('commands', async () => {
  const run = await box.process.executeCommand('echo $GREETING; echo $MORE >&2; pwd; exit 3', '/tmp', { MORE: 'more' })
  assert.deepEqual([run.exitCode, run.result, run.artifacts.stdout], [3, 'hello\nmore\n/tmp\n', 'hello\nmore\n/tmp\n'])
  const long = box.process.executeCommand('sleep 60', undefined, undefined, 1)
  await refused(DaytonaProcessExecutionTimeoutError, /timeout/, long)
  assert.match(await box.getWorkDir(), /^\//)
  assert.match(await box.getUserHomeDir(), /^\//)
})

test('code', async () => {
  // The language is a label of the sandbox, which its image need not have.
  const python = await client.create({ language: 'python', ephemeral: true })
  const program = 'import os, sys\nprint(6 * 7, "ä", os.environ["A"], sys.argv[1:])\nsys.exit(2)'
  const run = await python.process.codeRun(program, { argv: ['x y'], env: { A: 'b' } })
  assert.deepEqual([run.exitCode, run.result], [2, "42 ä b ['x y']\n"])
  assert.deepEqual(run.artifacts.charts, [])
  await python.stop()
  assert.equal(python.state, 'destroyed')
  const node = await box.process.executeCommand('command -v node')
  const js = await box.process.codeRun('console.log(6 * 7, process.argv.slice(1))', { argv: ['x y'] })
  assert.deepEqual([js.exitCode, js.result], node.exitCode === 0 ? [0, "42 [ 'x y' ]\n"] : [127, js.result])
})

test('sessions', async () => {
  const p = box.process
  await p.createSession('one')
  await refused(DaytonaConflictError, /already/, p.createSession('one'))
  await p.executeSessionCommand('one', { command: 'cd /tmp; X=5' })
  const done = await p.executeSessionCommand('one', { command: 'echo $X $PWD\necho no >&2\n(exit 4)' })
  assert.deepEqual([done.stdout, done.stderr, done.exitCode], ['5 /tmp\n', 'no\n', 4])
  const asked = await p.executeSessionCommand('one', { command: 'read x; echo "got $x"; echo end >&2', runAsync: true })
  assert.equal((await p.getSessionCommand('one', asked.cmdId)).exitCode, undefined)
  const out = []
  const err = []
  const following = p.getSessionCommandLogs('one', asked.cmdId, (text) => out.push(text), (text) => err.push(text))
  await p.sendSessionCommandInput('one', asked.cmdId, 'this ä\n')
  await following
  assert.deepEqual([out.join(''), err.join('')], ['got this ä\n', 'end\n'])
  assert.equal((await p.getSessionCommand('one', asked.cmdId)).exitCode, 0)
  const logs = await p.getSessionCommandLogs('one', asked.cmdId)
  assert.deepEqual(logs, { output: 'got this ä\nend\n', stdout: 'got this ä\n', stderr: 'end\n' })
  await refused(DaytonaCommandAlreadyCompletedError, /ended/, p.sendSessionCommandInput('one', asked.cmdId, 'late\n'))
  assert.equal((await p.getSession('one')).commands.at(-1).id, asked.cmdId)
  assert.deepEqual((await p.listSessions()).map((s) => s.sessionId), ['one'])
  assert.equal((await p.executeSessionCommand('one', { command: 'exit 7' })).exitCode, 7)
  await refused(DaytonaSessionEndedError, /has ended/, p.executeSessionCommand('one', { command: 'true' }))
  await p.deleteSession('one')
  await refused(DaytonaNotFoundError, /no such session/, p.getSession('one'))
})

test('files', async () => {
  const fs = box.fs
  await fs.createFolder('dir/sub', '750')
  await fs.uploadFile(Buffer.from('one\ntwo\n'), 'dir/sub/a.txt')
  const binary = Buffer.from(Array.from({ length: 25_600 }, (_, i) => i % 256))
  const other = { source: Buffer.from('three\n'), destination: 'dir/new/c ä.txt' }
  await fs.uploadFiles([{ source: binary, destination: 'dir/b.bin' }, other])
  assert.deepEqual(await fs.downloadFile('dir/b.bin'), binary)
  const local = await mkdtemp(join(tmpdir(), 'suite-'))
  try {
    await writeFile(join(local, 'up'), 'from a file')
    await fs.uploadFile(join(local, 'up'), 'dir/up')
    await fs.downloadFile('dir/up', join(local, 'down'))
    assert.equal(await readFile(join(local, 'down'), 'utf8'), 'from a file')
  } finally {
    await rm(local, { recursive: true })
  }
  const both = await fs.downloadFiles([{ source: 'dir/new/c ä.txt' }, { source: 'dir/nothing' }])
  assert.deepEqual([both[0].result.toString(), both[1].errorDetails.code], ['three\n', 'FILE_NOT_FOUND'])
  await refused(DaytonaFileNotFoundError, /does not exist/, fs.downloadFile('dir/nothing'))
  await fs.deleteFile('dir/up')
  const list = await fs.listFiles('dir')
  assert.deepEqual(list.map((f) => [f.name, f.isDir]).sort(), [['b.bin', false], ['new', true], ['sub', true]])
  assert.ok((await fs.listFiles('dir', { depth: 2 })).some((f) => f.name === 'c ä.txt'))
  await fs.setFilePermissions('dir/b.bin', { mode: '640' })
  const info = await fs.getFileDetails('dir/b.bin')
  assert.deepEqual([info.isDir, info.size, info.mode, info.permissions], [false, 25_600, '-rw-r-----', '0640'])
  await refused(DaytonaError, /owner or group/, fs.setFilePermissions('dir/b.bin', { owner: 'root' }))
  assert.deepEqual((await fs.findFiles('dir', 'two')).map((m) => [m.line, m.content]), [[2, 'two']])
  assert.match((await fs.searchFiles('dir', 'c*.txt')).files.join(), /dir\/new\/c ä\.txt$/)
  const replaced = await fs.replaceInFiles(['dir/sub/a.txt', 'dir/none'], 'two', '2')
  assert.deepEqual(replaced.map((r) => r.success), [true, false])
  await fs.moveFiles('dir/sub/a.txt', 'dir/d.txt')
  assert.equal((await fs.downloadFile('dir/d.txt')).toString(), 'one\n2\n')
  await refused(DaytonaError, /\/proc\/x: ./, fs.uploadFile(Buffer.from('x'), '/proc/x'))
  await refused(DaytonaError, /recursive/, fs.deleteFile('dir'))
  await fs.deleteFile('dir', true)
  await refused(DaytonaNotFoundError, /./, fs.getFileDetails('dir'))
})

test('file streams', async () => {
  const sent = []
  const got = []
  const text = Buffer.from('0123456789'.repeat(20_000))
  await box.fs.uploadFileStream(text, 'streamed', { onProgress: (p) => sent.push(p.bytesSent) })
  assert.equal(sent.at(-1), text.length)
  const parts = []
  const onProgress = (p) => got.push([p.bytesReceived, p.totalBytes])
  for await (const part of await box.fs.downloadFileStream('streamed', { onProgress })) parts.push(part)
  assert.deepEqual(Buffer.concat(parts), text)
  assert.deepEqual(got.at(-1), [text.length, text.length])
  await refused(DaytonaFileNotFoundError, /does not exist/, box.fs.downloadFileStream('nothing'))
})

// server hands out the repositories below the home directory to whoever knows a user's name and password.
const server = `
import base64, http.server, os
class Handler(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        if self.headers.get("Authorization") != "Basic " + base64.b64encode(b"anna:let me in").decode():
            self.send_response(401)
            self.send_header("WWW-Authenticate", "Basic")
            self.send_header("Content-Length", "0")
            return self.end_headers()
        super().do_GET()
http.server.ThreadingHTTPServer(("127.0.0.1", 8418), Handler).serve_forever()
`

test('git', async () => {
  const g = box.git
  await sh('git init -q -b main repo && echo a >repo/a')
  assert.deepEqual((await g.status('repo')).fileStatus.map((f) => [f.name, f.staging]), [['a', 'Untracked']])
  await g.add('repo', ['a'])
  assert.match((await g.commit('repo', 'first', 'A B', 'a@example.com')).sha, /^[0-9a-f]{40}$/)
  await g.createBranch('repo', 'next')
  await refused(DaytonaGitBranchExistsError, /already exists/, g.createBranch('repo', 'next'))
  assert.deepEqual((await g.branches('repo')).branches.sort(), ['main', 'next'])
  await g.checkoutBranch('repo', 'next')
  await refused(DaytonaGitBranchNotFoundError, /./, g.checkoutBranch('repo', 'no-such-branch'))
  const status = await g.status('repo')
  assert.deepEqual([status.currentBranch, status.fileStatus], ['next', []])
  await g.checkoutBranch('repo', 'main')
  await g.deleteBranch('repo', 'next')
  await refused(DaytonaGitRepoNotFoundError, /not a git repository/, g.status('/tmp'))

  await sh('git clone -q --bare repo served.git && git -C served.git update-server-info')
  await box.fs.uploadFile(Buffer.from(server), 'server.py')
  await box.process.createSession('git')
  await box.process.executeSessionCommand('git', { command: 'python3 server.py', runAsync: true })
  await eventually('the repository is served', async () => /:20E2/.test(await sh('cat /proc/net/tcp')))
  const url = 'http://127.0.0.1:8418/served.git'
  await refused(DaytonaGitAuthFailedError, /./, g.clone(url, 'stranger'))
  await refused(DaytonaGitAuthFailedError, /./, g.clone(url, 'stranger', undefined, undefined, 'anna', 'guessed'))
  await g.clone(url, 'copy', 'main', undefined, 'anna', 'let me in')
  assert.equal(await sh('cat copy/a'), 'a\n')
  assert.equal((await g.status('copy')).branchPublished, true)
  const places = 'copy ~/.git* ~/.daytona /proc/[0-9]*/environ'
  const left = await box.process.executeCommand(`grep -rF "let me in" ${places} 2>/dev/null`)
  assert.equal(left.result, '', 'the password stays in the sandbox')
  await g.pull('copy', 'anna', 'let me in')
  await box.process.deleteSession('git')

  await g.clone('served.git', 'second')
  await sh('echo b >second/b')
  await g.add('second', ['b'])
  await g.commit('second', 'second', 'A B', 'a@example.com')
  await g.push('second')
  await sh('git -C repo pull -q ../served.git main')
  assert.equal(await sh('cat repo/b'), 'b\n')
})

// fetchPort asks the edge itself, whatever the name in the URL resolves to here.
function fetchPort(link, token) {
  const edge = new URL(process.env.E2B_SANDBOX_URL)
  const url = new URL(link)
  const headers = { host: url.host, ...(token && { 'x-daytona-preview-token': token }) }
  return new Promise((resolve, reject) => {
    http.get({ host: edge.hostname, port: edge.port, path: url.pathname + url.search, headers }, (answer) => {
      answer.resume()
      resolve(answer.statusCode)
    }).on('error', reject)
  })
}

test('previews', async () => {
  await box.process.createSession('web')
  await box.process.executeSessionCommand('web', { command: 'python3 -m http.server 8000', runAsync: true })
  const connects = `python3 -c 'import socket; socket.create_connection(("127.0.0.1", 8000))'`
  await eventually('a server', async () => (await box.process.executeCommand(connects)).exitCode === 0)
  const link = await box.getPreviewLink(8000)
  assert.equal(await fetchPort(link.url, link.token), 200)
  assert.ok([401, 403].includes(await fetchPort(link.url)))
  assert.equal((await box.getPreviewLink(8000)).token, link.token)
  const signed = await box.getSignedPreviewUrl(8000, 600)
  assert.equal(await fetchPort(signed.url), 200)
  await box.expireSignedPreviewUrl(8000, signed.token)
  await eventually('the signed URL is closed', async () => (await fetchPort(signed.url)) !== 200)
})

test('stop, start, delete', async () => {
  await sh('echo kept >kept')
  await box.stop()
  assert.equal(box.state, 'stopped')
  await refused(DaytonaConflictError, /start it first/, box.process.executeCommand('true'))
  await box.start()
  assert.equal(box.state, 'started')
  assert.equal(await sh('cat kept'), 'kept\n')
  await box.delete()
  await refused(DaytonaNotFoundError, /no such sandbox/, client.get(box.id))
})

test('what is missing is refused with a reason', async () => {
  const one = await client.create({ ephemeral: true })
  await refused(DaytonaError, /does not offer/, one.process.listPtySessions())
  await refused(DaytonaError, /does not offer/, one.git.init('x'))
  await refused(DaytonaError, /does not offer/, one.createSnapshot('x'))
  await refused(DaytonaError, /does not offer/, one.downloadUrl('x'))
  await one.delete()
})

const failed = await runAll()
for await (const left of client.list()) await left.delete()
console.log(failed ? `${failed} of ${cases.length} failed` : `all ${cases.length} cases passed`)
process.exit(failed ? 1 : 0)
