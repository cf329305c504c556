// Locks and elections for Node, over `leasehold agent`. One file without dependencies: copy it. Node 18 or later.
// If the agent is on a machine that dies, TCP's keep-alive ends a wait after about a minute.
//
//   import { Agent, Elector, HeldError, LostError } from './leasehold.mjs'
//
//   const agent = new Agent('http://localhost:7474')       // or 'unix:/run/leasehold/agent.sock'
//   await agent.lock('invoices', async (hold) => {         // { wait: 30 }: at most 30 s, { wait: 0 }: a try; then HeldError
//     await charge(invoices, { token: hold.token, signal: hold.signal })   // aborted if the lock is lost: then stop
//   })                                                     //   within hold.grace seconds. Rejects with LostError if it was
//
//   const value = await agent.run('nightly', backup, { tick: '2026-11-01T02:00:00Z' })   // without tick: once, for good
//
//   const elector = new Elector(agent, 'reports', { value: 'http://me:8080' })
//   elector.on('elected', start).on('revoked', stop)       // also 'select'; and 'change' (value, name) on every process
//   elector.start()                                        // pause() resigns, resume() campaigns again, stop() ends
import { EventEmitter } from 'node:events'
import http from 'node:http'
import os from 'node:os'
import { createInterface } from 'node:readline'

// The clock in ms. On Linux performance.now() stands still while the machine sleeps; os.uptime() is rounded down to 10 ms.
const now = process.platform === 'linux' ? () => os.uptime() * 1000 : () => performance.now()
const ROUNDING = 10

export class HeldError extends Error {} // others hold the key; holder has their name, host, pid and since
export class LostError extends Error {} // the hold is lost

export class Agent {
  constructor(url = 'http://localhost:7474', { token } = {}) {
    Object.assign(this, { url, token })
  }

  // Calls f with a Hold while the lock is held. Options: wait in seconds, signal (which ends only the wait), mode, of, n, limit ('1m').
  async lock(key, f, { wait, signal, ...params } = {}) {
    const stream = await this.open('GET', ['locks', key], { wait: seconds(wait), ...params }, { signal })
    return new Hold(this, stream, await stream.first()).during(f)
  }

  // Calls f unless a run has succeeded before, of a Periodic if there is a tick, else of a Once. Resolves to the result. If
  // it rejects with neither LostError nor what f throws, nobody has confirmed that the run has succeeded.
  async run(key, f, { tick, wait, signal, ...params } = {}) {
    const stream = await this.open('GET', [tick ? 'periodic' : 'once', key], { tick, wait: seconds(wait), ...params }, { signal })
    const first = await stream.first()
    if ('value_base64' in first) return Buffer.from(first.value_base64, 'base64')
    return 'done' in first ? first.value : new Hold(this, stream, first).during(f, true)
  }

  status(key) { return this.call('GET', ['status', key]) }
  async leader(name) { return (await this.call('GET', ['elections', name, 'leader'])).leader }

  async call(method, path, params = {}, body) {
    const stream = await this.open(method, path, params, { body, signal: AbortSignal.timeout(30_000) })
    return stream.status === 204 ? null : stream.next()
  }

  // Sends a request. Resolves to its response, or rejects with HeldError, LostError or another error.
  open(method, path, params = {}, { body, signal } = {}) {
    const query = new URLSearchParams(Object.entries(params).filter(([, value]) => value !== undefined)).toString()
    const where = '/v1/' + path.map(encodeURIComponent).join('/') + (query && '?' + query)
    const options = { method, agent: false, headers: this.token ? { Authorization: `Bearer ${this.token}` } : {} }
    return new Promise((resolve, reject) => {
      const sent = this.url.startsWith('unix:')
        ? http.request({ ...options, socketPath: this.url.slice(5), path: where, setHost: true, host: 'localhost' })
        : http.request(new URL(where, this.url), options)
      const abort = () => sent.destroy(signal.reason) // not after the response: the lock is held, and f at work
      signal?.addEventListener('abort', abort)
      if (signal?.aborted) abort()
      sent.on('close', () => signal?.removeEventListener('abort', abort))
      sent.on('socket', (socket) => socket.setKeepAlive(true, 60_000))
      sent.on('error', reject).on('response', async (response) => {
        signal?.removeEventListener('abort', abort)
        const stream = new Stream(sent, response)
        if (response.statusCode < 300) return resolve(stream)
        const { status } = stream
        const { error, holder } = await stream.next().catch((e) => ({ error: `HTTP status ${status}: ${e.message}` }))
        const Kind = { 409: HeldError, 404: LostError, 410: LostError }[status] ?? Error
        reject(Object.assign(new Kind(error), { holder, status }))
      })
      sent.end(body)
    })
  }
}

const seconds = (wait) => (wait === undefined ? undefined : `${wait}s`)

// The lines of a response. A line must come while the last one still lets the client rely on the hold.
class Stream {
  constructor(sent, response) {
    const { localAddress, remoteAddress } = response.socket // the same on this machine, where both have the same clock
    Object.assign(this, { sent, status: response.statusCode, until: 0, here: localAddress === remoteAddress })
    response.on('error', () => {}) // the lines end
    this.lines = createInterface({ input: response })[Symbol.asyncIterator]()
  }

  async next() {
    let timer
    const late = new Promise((_, reject) => {
      if (this.until) timer = setTimeout(() => reject(new LostError('no sign of life')), this.until - now())
    })
    try {
      const { value, done } = await Promise.race([this.lines.next(), late])
      if (done) throw new LostError('the response has ended')
      const line = JSON.parse(value)
      if (line.left_ms) {
        const read = now() // before the time of day: if this process is frozen between the two, that adds to the age
        const age = this.here && 'unix_ms' in line ? Math.max(0, Date.now() - line.unix_ms) : 0
        this.until = read + line.left_ms - age - ROUNDING
        if (age >= line.left_ms) throw new LostError(`no sign of life: the last is ${age} ms old`)
      } else if ('left_ms' in line) {
        if ('grace_ms' in line) throw new LostError('the hold is over already')
        this.until = now() + 30_000
      }
      return line
    } finally {
      clearTimeout(timer)
    }
  }

  async first() {
    try {
      return await this.next()
    } catch (e) {
      this.close() // nobody will work with the hold
      throw e
    }
  }

  close() { this.sent.destroy() }
}

// One hold. It emits 'lost' with the reason, and then its signal is aborted.
export class Hold extends EventEmitter {
  #stop = new AbortController()
  #over = false

  constructor(agent, stream, { held, id, token, grace_ms: grace, tick, error }) {
    super()
    if (!held) throw new LostError(error)
    Object.assign(this, { agent, stream, key: held, id, token, grace: grace / 1000, tick, signal: this.#stop.signal })
    this.#watch()
  }

  async #watch() {
    let cause
    try {
      while (!cause) cause = (await this.stream.next()).lost
    } catch (e) {
      cause = e.message
    }
    if (this.#over) return
    this.#stop.abort(new LostError(`${this.key}: ${cause}`))
    this.emit('lost', cause)
  }

  // Whether the hold is lost. It compares the clock, so it is right even if a timer is late.
  get lost() { return this.signal.aborted || now() > this.stream.until }

  // Renews the limit, such as '1m', with which the hold was requested.
  progress(limit) { return this.agent.call('POST', ['holds', this.id, 'progress'], { limit }) }

  async during(f, run = false) {
    try {
      const result = await f(this)
      this.#over = !this.signal.aborted
      const body = result === undefined || result instanceof Uint8Array ? result : String(result)
      await this.agent.call('POST', ['holds', this.id, 'done'], {}, run ? body : undefined)
        .catch((e) => { throw this.signal.reason ?? e })
      return result
    } finally {
      this.#over = true
      this.stream.close() // frees a lock, and fails a run, if f has thrown
    }
  }
}

// A candidate. Emits 'elected' (and 'select') for each term, and 'revoked' once for each, at once. Then the work must
// stop within the grace, which is in the argument of 'elected': grace_ms. The argument of 'revoked' is a function: call it
// when the work has stopped, and another may lead before the grace is over. If a listener throws, or the agent answers
// that the request or its token is wrong, the Elector resigns and emits 'error', which ends the process if nobody listens.
export class Elector extends EventEmitter {
  #term = null
  #campaign = null
  #watch = null

  constructor(agent, name, { value, preference } = {}) {
    super()
    Object.assign(this, { agent, name, params: { value, preference } })
  }

  start() {
    this.resume()
    if (this.listenerCount('change') > 0) this.#watch ??= this.#follow(['leaders'], {}, (line) => this.#change(line))
  }

  resume() { this.#campaign ??= this.#follow([], this.params, (line, stream) => this.#line(line, stream)) }

  pause() {
    try {
      this.#revoke() // before the response is closed, for then another may lead
    } finally {
      this.#campaign?.end()
      this.#campaign = null
    }
  }

  stop() {
    this.pause()
    this.#watch?.end()
    this.#watch = null
  }

  isLeader() { return this.#term !== null && now() < this.#term.stream.until }

  // Reads a stream of the election, again and again, until end is called.
  #follow(path, params, f) {
    const follower = { wanted: true, end() { this.wanted = false; this.stream?.close() } }
    const read = async () => {
      while (follower.wanted) {
        const stream = await this.agent.open('GET', ['elections', this.name, ...path], params).catch((e) => {
          if (e.status >= 400 && e.status < 500 && ![408, 429].includes(e.status)) throw e // a proxy sends those two
          return null
        })
        follower.stream = stream
        for (let line = {}; line && follower.wanted; ) {
          line = await stream?.next().catch(() => null) // null: no agent, or no sign of life
          if (line && follower.wanted && f(line, stream) === false) break
        }
        const term = follower.wanted && path.length === 0 && this.#revoke()
        if (follower.wanted) await new Promise((resolve) => setTimeout(resolve, Math.max(1000, term?.grace_ms ?? 0)))
        stream?.close() // after the grace, for then another may lead
      }
    }
    read().catch((e) => {
      try {
        if (path.length === 0) this.pause()
      } finally {
        follower.end()
        this.emit('error', e)
      }
    })
    return follower
  }

  #line(line, stream) {
    if ('elected' in line) {
      this.#term = { ...line, stream }
      this.emit('elected', line)
      this.emit('select', line)
    } else if ('lost' in line || 'error' in line) {
      return this.#revoke() !== null // without a term, the response has ended
    }
  }

  #change({ leader }) {
    if (leader !== undefined) this.emit('change', leader?.value, leader?.name)
  }

  #revoke() {
    const term = this.#term
    this.#term = null
    if (term) this.emit('revoked', () => this.agent.call('POST', ['holds', term.id, 'done']).catch(() => {}))
    return term
  }
}
