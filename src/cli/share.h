/* share.h - names of recipes and models that come with snug, from any folder. */
#ifndef CLI_SHARE_H
#define CLI_SHARE_H

enum { SHARE_PATH = 1200 };

/* What `name` means to a person: itself when it is there as seen from the current folder; otherwise, written to `path`,
 * snug's own file of that name: "recipes/x.yaml" and "models/x" as in the source tree, or "x" within `folder`
 * ("recipes", "models"). Neither: the name, so that whoever opens it refuses it by that. */
const char *share_find(char path[SHARE_PATH], const char *folder, const char *name);

#endif
