// Package dev starts the servers Sandyard needs on a machine that runs neither: a private PostgreSQL cluster and a
// private redis-server, both on unix sockets in a directory of their own, invisible to the network and to any other
// instance. They are started by [StartPostgres] and [StartRedis] and end with the process that started them, even when
// that one is killed with SIGKILL. Their data stays, so that the next start finds it, unless
// [Options] ask for a throwaway server.
package dev
