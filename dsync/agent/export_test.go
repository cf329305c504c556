package agent

// Routes returns the method, path and parameters of each route.
func (h *Handler) Routes() (all [][3]string) {
	for _, r := range h.routes() {
		all = append(all, [3]string{r.method, r.path, r.params})
	}
	return all
}
