// Package attack plays what one tenant can do to another one, and to the installation, through the front door: API,
// worker and scheduler run as processes on servers of their own and a real Docker engine, and two tenants have an
// ordinary key each. The intruder attacks. The neighbour works meanwhile, and nothing of it may show or stop.
//
// An attack is one entry of the table in attacks_test.go. Each has the peak memory of every process and the neighbour's
// latencies measured, and every answer that the intruder gets is judged: see judge_test.go.
//
// It needs the build tag attack; `make attack` runs it, `make attack ONLY=name` one attack.
package attack
