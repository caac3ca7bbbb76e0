package boards

// Files are the generated files by their paths from the repository's top.
func Files() (map[string][]byte, error) {
	files := map[string][]byte{"dashboards/rules/fencepost.yaml": []byte(Rules(Alerts(), Records()))}
	for _, b := range Boards() {
		text, err := JSON(b)
		if err != nil {
			return nil, err
		}
		files["dashboards/"+b.File+".json"] = text
	}
	return files, nil
}
