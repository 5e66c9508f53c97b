package jobs

import "sandyard/egress"

// OneShot is a wish for one command in a sandbox of its own, as requests and schedules write it.
type OneShot struct {
	Template string            `json:"template,omitempty" doc:"A named environment; default python. Or give image"`
	Image    string            `json:"image,omitempty" doc:"A container image that the provider holds already"`
	Provider string            `json:"provider,omitempty" doc:"Default is the server's"`
	Labels   map[string]string `json:"labels,omitempty" doc:"Of the sandbox"`
	CPUs     float64           `json:"cpus,omitempty" doc:"Cores; default 1"`
	MemoryMB int64             `json:"memory_mb,omitempty" doc:"Memory and swap; default 512"`
	DiskMB   int64             `json:"disk_mb,omitempty" doc:"Size of the work directory; default 256"`
	Pids     int64             `json:"pids,omitempty" doc:"Processes and threads; default 256"`
	Network  bool              `json:"network,omitempty" doc:"Every public address may be reached. Default false: no network at all"`
	Egress   *egress.Policy    `json:"egress,omitempty" doc:"What may be reached of the outside"`
	Files    []Write           `json:"files,omitempty" maxItems:"100" doc:"Written before the command starts"`
	Exec
}

// RunOnce is the wish with a sandbox that outlives its command.
func (o OneShot) RunOnce() RunOnce {
	command := max(o.TimeoutSeconds, DefaultExecTimeout.Seconds())
	return RunOnce{Files: o.Files, Exec: o.Exec, Sandbox: CreateSandbox{
		Template: o.Template, Image: o.Image, Provider: o.Provider, Labels: o.Labels, CPUs: o.CPUs, MemoryMB: o.MemoryMB,
		DiskMB: o.DiskMB, Pids: o.Pids, Network: o.Network, Egress: o.Egress,
		TimeoutSeconds: min(max(command+600, DefaultTimeout.Seconds()), MaxTimeout.Seconds()),
	}}
}
