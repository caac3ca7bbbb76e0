export interface Options extends common.SingleStatBaseOptions {
    colorMode: common.BigValueColorMode;
    graphMode: common.BigValueGraphMode;
    justifyMode: common.BigValueJustifyMode;
    percentChangeColorMode: common.PercentChangeColorMode;
    showPercentChange: boolean;
    textMode: common.BigValueTextMode;
    wideLayout: boolean;
}
