package intake

// adapters are the LoRA adapters that engines list among their models and the
// configuration does not name. Requests may name them as models.
type adapters map[string]*route

// listAdapters rebuilds the table of adapters, and the list of models. If two pools list
// one, the first of the configuration gets its requests.
func (i *Intake) listAdapters() {
	i.listing.Lock()
	defer i.listing.Unlock()
	t := i.table.Load()
	all := adapters{}
	for _, to := range t.pools {
		for _, name := range to.pool.ListedAdapters() {
			if t.models[name] == nil && all[name] == nil {
				all[name] = to.route(name, name)
			}
		}
	}
	i.adapters.Store(&all)
	i.listModels(t, all)
}
