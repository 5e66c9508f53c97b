package guestconn

import "sandyard/providers"

// Capabilities are those of a provider whose sandboxes hold a guest of ours, on the worker's own machine.
func Capabilities(provider string) providers.Capabilities {
	return providers.Capabilities{
		Provider:    provider,
		Exec:        providers.Native,
		Files:       providers.Native,
		Code:        providers.Native,
		FileTools:   providers.Native,
		Pause:       providers.Native,
		PauseMemory: providers.Native,
		SplitOutput: providers.Native,
		Stdin:       providers.Native,
		Network:     providers.Emulated,
		Background:  providers.Native,
		Processes:   providers.Native,
		Terminals:   providers.Native,
		Watch:       providers.Native,
		Ports:       providers.Native,
		Images:      providers.Native,
		Builds:      providers.Unsupported,
		Confined:    providers.Native,
		PerNode:     true,
	}
}
